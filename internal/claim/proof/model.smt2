; The rules of a name, for any number of acquisitions and requests.
;
; This text is the only source. Package proof reads it, writes out what is short here, and
; gives the result to z3: see proof.smt2, which is made from it. The tests of package claim
; evaluate the same actions on the steps that they explore.
;
; What is short here: a variable x! is x after a step; flushed.x is what is on the disk.
; (only x y) says that a step changes nothing but x and y, and nothing on the disk;
; (durably x y) says that what the tables are after the step is on the disk then.
;
; All times are integers, of the clock of the database unless it says otherwise. A
; transaction that has locked the row is one step, at the time that it has read.

(set-info :section sorts)

(declare-sort Acq 0) ; an acquisition: one call's way to a term, or the key of a detached term
(declare-sort Req 0) ; something that was sent for an acquisition, and its reply
(declare-datatypes ((Kind 0)) (((exclusive) (shared) (permit) (detached))))
(declare-datatypes ((Stage 0)) (((unsent) (sent) (answered) (heard))))

(set-info :section parameters)

(declare-const nobody Acq)
(declare-fun kind (Acq) Kind)
(declare-fun of (Req) Acq)
(declare-fun delay (Acq) Int)  ; LockDelay
(declare-const retention Int)  ; how old the version of a row is that is deleted
(declare-fun least (Int) Int)  ; the least by which a client's clock moves while that of the database moves by so much
(declare-fun trusted (Int) Int) ; for how long of its own clock a client trusts a term that lasts for so long

(set-info :section assumptions)

(define-fun drift-is-bounded () Bool (and (<= (least 0) 0) (forall ((d Int) (e Int)) (=> (<= d e) (<= (least d) (least e))))))
(define-fun margin-covers-drift () Bool (forall ((d Int)) (<= (trusted d) (least d))))
(define-fun durations-are-not-negative () Bool (and (>= retention 0) (forall ((a Acq)) (>= (delay a) 0))))
(define-fun requests-are-of-clients () Bool
  (forall ((r Req)) (and (not (= (of r) nobody)) (not (= (kind (of r)) detached)))))

; The tables: the row of the name, and the claims of acquisitions.
(set-info :section tables)

(declare-const version Int)
(declare-const holder Acq)      ; who holds alone, or nobody
(declare-const until Int)       ; when the holder's term ends
(declare-const not-before Int)
(declare-const permits Int)
(declare-const holding Int)     ; the count of claims that hold
(declare-const waiting Int)     ; the count of claims that wait
(declare-fun shares (Acq) Bool) ; it has a claim that holds
(declare-fun waits (Acq) Bool)  ; it has a claim that waits
(declare-fun token (Acq) Int)   ; of a claim that holds, as are the next two
(declare-fun slot (Acq) Int)
(declare-fun ends (Acq) Int)
; Ghosts: no row has them. The claims that are counted have different ranks below the count.
(declare-const room Int) ; permits, or what was held when permits was lowered below that
(declare-fun rank (Acq) Int)
(declare-fun position (Acq) Int)

; What else there is. Nothing of this outlives a crash of the database but the clocks and
; what clients know.
(set-info :section state)

(declare-const now Int)
(declare-const top Int)           ; a ghost: the highest version ever
(declare-const revoked Int)       ; a ghost: top when all terms were ended by force
(declare-const stranger Bool)     ; a transaction that is not the holder's has locked the row
(declare-fun pinned (Acq) Bool)   ; a transaction guards its term
(declare-fun guarded (Acq) Int)   ; the token that was guarded
(declare-fun renewing (Acq) Bool) ; a renewal of its claim has not committed
(declare-fun new-end (Acq) Int)   ; what that renewal writes
(declare-fun over (Acq) Bool)     ; its client has given it up, lost it or unlocked it: it never trusts it again
(declare-fun local (Acq) Int)     ; the clock of its client
(declare-fun stage (Req) Stage)
(declare-fun from (Req) Int)      ; the client's clock before the request was sent; its deadline counts from here
(declare-fun began (Req) Int)     ; a ghost: the clock of the database at that moment
(declare-fun worth (Req) Int)     ; in a reply: how long the term lasts, LockDelay left out
(declare-fun received (Req) Int)      ; in a reply: the token

(set-info :section rules-of-tables)

(define-fun tokens-are-old () Bool (and
  (<= 0 version) (<= version top)
  (or (<= top version) (< top now))
  (forall ((a Acq)) (=> (shares a) (and (< 0 (token a)) (<= (token a) version))))))
(define-fun one-holds-or-some-share () Bool (forall ((a Acq)) (=> (shares a) (= holder nobody))))
(define-fun kinds-do-not-mix () Bool (and
  (=> (not (= holder nobody)) (and (< 0 version) (or (= (kind holder) exclusive) (= (kind holder) detached))))
  (forall ((a Acq)) (=> (shares a) (and (not (= a nobody)) (or (= (kind a) shared) (= (kind a) permit)))))
  (forall ((a Acq) (b Acq)) (=> (and (shares a) (shares b)) (= (kind a) (kind b))))))
(define-fun readers-have-one-token () Bool (forall ((a Acq)) (=> (and (shares a) (= (kind a) shared)) (= (token a) version))))
(define-fun permits-have-their-slots () Bool (and
  (<= 0 permits) (<= permits room)
  (forall ((a Acq)) (=> (and (shares a) (= (kind a) permit)) (and (<= 0 (slot a)) (<= holding room))))
  (forall ((a Acq) (b Acq)) (=> (and (shares a) (shares b) (= (kind a) permit) (not (= a b)))
    (and (not (= (slot a) (slot b))) (not (= (token a) (token b))))))))
(define-fun counts-are-high-enough () Bool (and
  (forall ((a Acq)) (=> (shares a) (and (<= 0 (rank a)) (< (rank a) holding))))
  (forall ((a Acq) (b Acq)) (=> (and (shares a) (shares b) (= (rank a) (rank b))) (= a b)))
  (forall ((a Acq)) (=> (waits a) (and (<= 0 (position a)) (< (position a) waiting) (not (shares a)) (not (= a nobody)))))
  (forall ((a Acq) (b Acq)) (=> (and (waits a) (waits b) (= (position a) (position b))) (= a b)))
  (<= 0 holding) (<= 0 waiting)))
(define-fun a-token-has-one-owner () Bool (forall ((r Req)) (=> (or (= (stage r) answered) (= (stage r) heard)) (and
  (=> (and (not (= holder nobody)) (not (= (kind holder) detached)) (= version (received r))) (= holder (of r)))
  (forall ((a Acq)) (=> (and (shares a) (= (token a) (received r))) (or (= a (of r)) (and (= (kind a) shared) (= (kind (of r)) shared)))))))))

(set-info :section rules)

(define-fun what-is-held-is-flushed () Bool (and
  (=> (not (= holder nobody)) (and (= flushed.holder holder) (= flushed.version version) (= flushed.until until)))
  (forall ((a Acq)) (=> (shares a)
    (and (flushed.shares a) (= (flushed.token a) (token a)) (= (flushed.ends a) (ends a)) (= (flushed.slot a) (slot a)))))))
(define-fun what-is-guarded-goes-on () Bool (forall ((a Acq)) (=> (pinned a) (and (not (= a nobody))
  (or (and (= holder a) (= version (guarded a))) (and (shares a) (= (token a) (guarded a))))))))
(define-fun what-is-renewed-goes-on () Bool (forall ((a Acq)) (=> (renewing a) (and (shares a) (<= (ends a) (new-end a))))))
(define-fun clocks-have-kept-pace () Bool (forall ((r Req)) (=> (not (= (stage r) unsent))
  (and (<= (began r) now) (<= (least (- now (began r))) (- (local (of r)) (from r)))))))
(define-fun is-answered ((r Req)) Bool (or (= (stage r) answered) (= (stage r) heard)))
; A client may trust what it was told, from now on or when it hears it.
(define-fun may-trust ((r Req)) Bool (and (is-answered r) (not (over (of r))) (< revoked (received r))
  (< (local (of r)) (+ (from r) (trusted (worth r))))))
(define-fun who-may-trust-holds () Bool (forall ((r Req)) (=> (may-trust r)
  (or (and (= holder (of r)) (= version (received r)) (<= (+ (began r) (worth r)) until))
      (and (shares (of r)) (= (token (of r)) (received r)) (<= (+ (began r) (worth r)) (ends (of r))))))))
(define-fun answers-name-old-tokens () Bool (and
  (<= 0 revoked) (<= revoked top)
  (forall ((r Req)) (=> (is-answered r) (and (< 0 (received r)) (<= (received r) top))))
  (forall ((r Req) (q Req)) (=> (and (is-answered r) (is-answered q) (= (received r) (received q)))
    (or (= (of r) (of q)) (and (= (kind (of r)) shared) (= (kind (of q)) shared)))))))

; What follows from the rules.
(set-info :section theorems)

(define-fun trusts ((r Req)) Bool (and (= (stage r) heard) (may-trust r)))
(define-fun excluded () Bool (forall ((r Req) (q Req)) (=> (and (trusts r) (trusts q) (not (= (of r) (of q))))
  (or (and (= (kind (of r)) shared) (= (kind (of q)) shared) (= (received r) (received q)))
      (and (= (kind (of r)) permit) (= (kind (of q)) permit)
        (not (= (slot (of r)) (slot (of q))))
        ; no more than room, since different ranks are below it
        (<= 0 (rank (of r))) (< (rank (of r)) room) (<= 0 (rank (of q))) (< (rank (of q)) room) (not (= (rank (of r)) (rank (of q)))))))))
(define-fun deadline-ends-before-the-term () Bool (forall ((r Req)) (=> (trusts r)
  (or (and (= holder (of r)) (< now until)) (and (shares (of r)) (< now (ends (of r))))))))
(define-fun guard-excludes () Bool (forall ((a Acq) (b Acq)) (=> (and (pinned a) (not (= a b)))
  (and (or (not (= b holder)) (= b nobody))
    (=> (shares b) (or (and (= (kind a) shared) (= (kind b) shared) (= (guarded a) (token b)))
      (and (= (kind a) permit) (= (kind b) permit) (not (= (slot a) (slot b))))))))))

; What each step keeps to.
(set-info :section steps)

(define-fun tokens-rise () Bool (and
  (<= top top!)
  (=> (and (not (= holder! nobody)) (not (= (kind holder!) detached)) (or (not (= holder! holder)) (not (= version! version))))
    (< top version!))
  (forall ((a Acq)) (=> (and (shares! a) (not (and (shares a) (= (token a) (token! a)))))
    (or (< top (token! a))
      (and (= (kind a) shared) (exists ((b Acq)) (and (shares b) (= (kind b) shared) (= (token b) (token! a))))))))))
(define-fun permits-are-not-exceeded () Bool (forall ((a Acq))
  (=> (and (shares! a) (= (kind a) permit) (not (and (shares a) (= (token a) (token! a))))) (<= holding! permits!))))
(define-fun nothing-is-revived () Bool (and
  (=> (and (not (= holder nobody)) (= holder! holder) (= version! version) (<= until now)) (<= until! now!))
  (forall ((a Acq)) (=> (and (shares a) (shares! a) (= (token a) (token! a)) (not (renewing a)) (<= (ends a) now))
    (and (<= (ends! a) now!) (not (renewing! a)))))))
(define-fun nothing-is-shortened () Bool (and
  (=> (and (not (= holder nobody)) (= holder! holder) (= version! version)) (<= until until!))
  (forall ((a Acq)) (=> (and (shares a) (shares! a) (= (token a) (token! a))) (<= (ends a) (ends! a))))))

(set-info :section start)

(define-fun Start () Bool (and (= version 0) (= flushed.version 0) (= top 0) (= revoked 0)
  (= holder nobody) (= flushed.holder nobody) (= permits 0) (= room 0) (= flushed.permits 0) (= flushed.room 0)
  (= holding 0) (= waiting 0) (= flushed.holding 0) (= flushed.waiting 0)
  (forall ((a Acq)) (not (or (shares a) (waits a) (flushed.shares a) (flushed.waits a) (pinned a) (renewing a))))
  (forall ((r Req)) (= (stage r) unsent))))

(set-info :section helpers)

(define-fun next-version () Int (ite (< version now) now (+ version 1)))
(define-fun nobody-shares () Bool (forall ((c Acq)) (not (shares c))))
(define-fun row-is-pinned () Bool (or stranger (pinned holder)))
(define-fun is-free () Bool (and (= holder nobody) (<= not-before now) (not row-is-pinned)))
(define-fun may-hold-alone ((a Acq)) Bool (and (not (= a nobody)) (= (kind a) exclusive)))
(define-fun holds-alone ((a Acq) (e Int)) Bool (and (= holder! a) (= version! next-version) (= top! version!) (= until! e)))
; A claim that holds is added, or ends.
(define-fun shares-too ((a Acq) (t Int) (s Int) (e Int)) Bool (and (= holding! (+ holding 1))
  (forall ((c Acq)) (and
    (= (shares! c) (or (= c a) (shares c)))
    (= (token! c) (ite (= c a) t (token c)))
    (= (slot! c) (ite (= c a) s (slot c)))
    (= (ends! c) (ite (= c a) e (ends c)))
    (= (rank! c) (ite (= c a) holding (rank c)))))))
(define-fun shares-no-more ((a Acq)) Bool (and (= holding! (- holding 1))
  (forall ((c Acq)) (and
    (= (shares! c) (and (not (= c a)) (shares c)))
    (= (rank! c) (ite (= (rank c) (- holding 1)) (rank a) (rank c)))))))
(define-fun waits-no-more ((a Acq)) Bool (and (= waiting! (- waiting 1))
  (forall ((c Acq)) (and
    (= (waits! c) (and (not (= c a)) (waits c)))
    (= (position! c) (ite (= (position c) (- waiting 1)) (position a) (position c)))))))
(define-fun may-be-ended ((a Acq)) Bool (and (shares a) (not (pinned a)) (not (renewing a))))

(set-info :section actions)

; A grant by one statement on the row.
(define-fun GrantByRow ((a Acq) (e Int)) Bool (and
  (may-hold-alone a) is-free (= holding 0) (= waiting 0) (< now e)
  (holds-alone a e)
  (durably holder version until top)))
; A grant by a visit, which has read the claims that hold. Dead ones were ended by a step before.
(define-fun Grant ((a Acq) (e Int)) Bool (and
  (may-hold-alone a) is-free nobody-shares (< now e)
  (holds-alone a e)
  (durably holder version until top)))
(define-fun TakeOver ((a Acq) (e Int)) Bool (and
  (may-hold-alone a) (not (= holder nobody)) (<= until now) (not row-is-pinned) (<= not-before now) (< now e)
  (holds-alone a e)
  (durably holder version until top)))
(define-fun HandOver ((b Acq) (t Int) (a Acq) (e Int)) Bool (and
  (over b) (may-hold-alone a) (= holder b) (not (= b nobody)) (= version t) (not row-is-pinned) (waits a) (<= not-before now) (< now e)
  (holds-alone a e) (waits-no-more a)
  (durably holder version until top waiting waits position)))
(define-fun GrantFirstReader ((a Acq) (e Int)) Bool (and
  (not (= a nobody)) (= (kind a) shared) is-free nobody-shares (not (waits a)) (< now e)
  (= version! next-version) (= top! version!) (shares-too a version! 0 e)
  (durably version top holding shares token slot ends rank)))
(define-fun GrantNextReader ((a Acq) (b Acq) (e Int)) Bool (and
  (not (= a nobody)) (= (kind a) shared) is-free (shares b) (= (kind b) shared) (not (shares a)) (not (waits a)) (< now e)
  (shares-too a version 0 e)
  (durably holding shares token slot ends rank)))
(define-fun GrantPermit ((a Acq) (s Int) (e Int)) Bool (and
  (not (= a nobody)) (= (kind a) permit) is-free (not (shares a)) (not (waits a)) (< now e)
  (<= 0 s) (< s permits) (< holding permits)
  (forall ((c Acq)) (=> (shares c) (and (= (kind c) permit) (not (= (slot c) s)))))
  (= version! next-version) (= top! version!) (shares-too a version! s e)
  (durably version top holding shares token slot ends rank)))
; By the first who asks for one, or anew: nobody loses one if there are fewer then.
(define-fun SetPermits ((n Int)) Bool (and
  (< 0 n) (= permits! n) (= room! (ite (< n holding) holding n))
  (only permits room)))

; Renewals. That of a claim locks the claim alone, and may commit later.
(define-fun Renew ((a Acq) (t Int) (e Int)) Bool (and
  (may-hold-alone a) (= holder a) (= version t) (< now until) (<= until e)
  (= until! e)
  (durably until)))
(define-fun BeginRenewal ((a Acq) (t Int) (e Int)) Bool (and
  (shares a) (= (token a) t) (not (renewing a)) (< now (ends a)) (<= (ends a) e)
  (forall ((c Acq)) (and (= (renewing! c) (or (= c a) (renewing c))) (= (new-end! c) (ite (= c a) e (new-end c)))))
  (only renewing new-end)))
(define-fun CommitRenewal ((a Acq)) Bool (and
  (renewing a)
  (forall ((c Acq)) (and (= (renewing! c) (and (not (= c a)) (renewing c))) (= (ends! c) (ite (= c a) (new-end a) (ends c)))))
  (durably renewing ends)))

; The end of a term: by its token, or by its acquisition alone if the outcome is unknown.
(define-fun Release ((a Acq) (t Int) (n Int)) Bool (and
  (over a) (not (= a nobody)) (= holder a) (= version t) (not (pinned a)) (<= not-before n)
  (= holder! nobody) (= not-before! n)
  (only holder not-before)))
(define-fun Withdraw ((a Acq) (n Int)) Bool (and
  (over a) (not (= a nobody)) (= holder a) (not (pinned a)) (<= not-before n)
  (= holder! nobody) (= not-before! n)
  (only holder not-before)))
(define-fun ReleaseClaim ((a Acq) (t Int) (n Int)) Bool (and
  (over a) (may-be-ended a) (= (token a) t) (<= not-before n)
  (shares-no-more a) (= not-before! n)
  (only holding shares rank not-before)))
(define-fun WithdrawClaim ((a Acq) (n Int)) Bool (and
  (over a) (may-be-ended a) (<= not-before n)
  (shares-no-more a) (= not-before! n)
  (only holding shares rank not-before)))
(define-fun Expire () Bool (and
  (not (= holder nobody)) (<= until now) (not row-is-pinned)
  (= holder! nobody)
  (only holder)))
(define-fun ExpireClaim ((a Acq)) Bool (and
  (may-be-ended a) (<= (ends a) now)
  (shares-no-more a)
  (only holding shares rank)))
(define-fun Revoke () Bool (and
  (not row-is-pinned) (forall ((c Acq)) (=> (shares c) (may-be-ended c)))
  (= holder! nobody) (= holding! 0) (forall ((c Acq)) (not (shares! c)))
  (= revoked! top) (= version! next-version) (= top! version!) (= not-before! 0)
  (durably holder holding shares version top revoked not-before)))

; The queue.
(define-fun EnterQueue ((a Acq)) Bool (and
  (not (= a nobody)) (not (= (kind a) detached)) (not (waits a)) (not (shares a))
  (= waiting! (+ waiting 1))
  (forall ((c Acq)) (and (= (waits! c) (or (= c a) (waits c))) (= (position! c) (ite (= c a) waiting (position c)))))
  (only waiting waits position)))
(define-fun LeaveQueue ((a Acq)) Bool (and (waits a) (waits-no-more a) (only waiting waits position)))
(define-fun Recount () Bool (and
  (<= 0 holding!) (<= holding! holding) (<= 0 waiting!) (<= waiting! waiting)
  (forall ((c Acq)) (=> (shares c) (and (<= 0 (rank! c)) (< (rank! c) holding!))))
  (forall ((c Acq) (d Acq)) (=> (and (shares c) (shares d) (= (rank! c) (rank! d))) (= c d)))
  (forall ((c Acq)) (=> (waits c) (and (<= 0 (position! c)) (< (position! c) waiting!))))
  (forall ((c Acq) (d Acq)) (=> (and (waits c) (waits d) (= (position! c) (position! d))) (= c d)))
  (only holding waiting rank position)))

; A term that is given to another.
(define-fun Detach ((a Acq) (t Int) (k Acq) (e Int)) Bool (and
  (over a) (may-hold-alone a) (= holder a) (= version t) (< now until) (not row-is-pinned) (not (= k nobody)) (= (kind k) detached) (< now e)
  (= holder! k) (= until! e)
  (durably holder until)))
(define-fun Adopt ((a Acq) (k Acq) (e Int)) Bool (and
  (may-hold-alone a) (not (= k nobody)) (= holder k) (= (kind k) detached) (< now until) (not row-is-pinned) (< now e)
  (holds-alone a e)
  (durably holder version until top)))
; Who resumes a term knows that its client has ended.
(define-fun Resume ((a Acq) (b Acq) (t Int) (e Int)) Bool (and
  (over b) (may-hold-alone a) (may-hold-alone b) (= holder b) (= version t) (< now until) (not row-is-pinned) (< now e)
  (holds-alone a e)
  (durably holder version until top)))

; Transactions of the application.
(define-fun BeginGuard ((a Acq) (t Int)) Bool (and
  (or (and (may-hold-alone a) (= holder a) (= version t) (< now until)) (and (shares a) (= (token a) t) (< now (ends a))))
  (forall ((c Acq)) (and (= (pinned! c) (or (= c a) (pinned c))) (= (guarded! c) (ite (= c a) t (guarded c)))))
  (only pinned guarded)))
(define-fun EndGuard ((a Acq)) Bool (and
  (pinned a) (forall ((c Acq)) (= (pinned! c) (and (not (= c a)) (pinned c))))
  (only pinned)))
(define-fun Strange () Bool (only stranger))
; UnlockTx: the transaction that guards a term ends it, and commits.
(define-fun EndInTx ((a Acq) (t Int) (n Int)) Bool (and
  (pinned a) (= holder a) (= version t) (not stranger) (<= not-before n)
  (= holder! nobody) (= not-before! n)
  (forall ((c Acq)) (and (= (pinned! c) (and (not (= c a)) (pinned c))) (= (over! c) (or (= c a) (over c)))))
  (only holder not-before pinned over)))

; The database.
(define-fun Purge () Bool (and
  (= holder nobody) (= holding 0) (= waiting 0) (not row-is-pinned) (<= not-before now) (< version (- now retention))
  (= version! 0) (= permits! 0) (= not-before! 0)
  (only version permits not-before)))
(define-fun Flush () Bool (durably))
(define-fun Crash () Bool (and
  restored
  (not stranger!) (forall ((c Acq)) (and (not (pinned! c)) (not (renewing! c))))
  (but-tables stranger pinned renewing)))
(define-fun Tick () Bool (and
  (<= now now!) (forall ((c Acq)) (<= (local c) (local! c)))
  (forall ((r Req)) (=> (not (= (stage r) unsent)) (<= (least (- now! (began r))) (- (local! (of r)) (from r)))))
  (only now local)))

; Clients.
(define-fun Send ((r Req)) Bool (and
  (= (stage r) unsent)
  (forall ((q Req)) (and (= (stage! q) (ite (= q r) sent (stage q)))
    (= (from! q) (ite (= q r) (local (of r)) (from q))) (= (began! q) (ite (= q r) now (began q)))))
  (only stage from began)))
; A statement that has read the clock at x says what is held: of a grant, a renewal, a beat.
(define-fun Answer ((r Req) (x Int)) Bool (and
  (= (stage r) sent) (<= (began r) x) (<= x now)
  (or (= holder (of r)) (shares (of r)))
  (forall ((q Req)) (and (= (stage! q) (ite (= q r) answered (stage q)))
    (= (received! q) (ite (= q r) (ite (= holder (of r)) version (token (of r))) (received q)))
    (= (worth! q) (ite (= q r) (- (ite (= holder (of r)) until (ends (of r))) x (delay (of r))) (worth q)))))
  (only stage received worth)))
(define-fun Hear ((r Req)) Bool (and
  (= (stage r) answered) (not (over (of r))) (< (local (of r)) (+ (from r) (trusted (worth r))))
  (forall ((q Req)) (= (stage! q) (ite (= q r) heard (stage q))))
  (only stage)))
(define-fun HearTooLate ((r Req)) Bool (and
  (= (stage r) answered) (<= (+ (from r) (trusted (worth r))) (local (of r)))
  (forall ((c Acq)) (= (over! c) (or (= c (of r)) (over c))))
  (only over)))
(define-fun Stop ((a Acq)) Bool (and (forall ((c Acq)) (= (over! c) (or (= c a) (over c)))) (only over)))

; What the code makes of a TTL, in microseconds, is covered by clocks whose rates differ by
; up to one in a hundred.
(set-info :section margin)

(define-fun trusted-of-code ((d Int)) Int (- d (div d 100) 2000))
(define-fun least-of-code ((d Int)) Int (- d (div d 100)))
(define-fun code-satisfies-assumptions () Bool (forall ((d Int) (e Int) (client Int) (database Int)) (and
  (<= (least-of-code 0) 0)
  (<= (trusted-of-code d) (least-of-code d))
  (=> (<= d e) (<= (least-of-code d) (least-of-code e)))
  ; the client's clock has moved by a hundredth less, at most
  (=> (and (<= 0 database) (<= (* 99 database) (* 100 client))) (<= (least-of-code database) client))
  (=> (and (<= 0 d) (<= d database) (<= (* 99 database) (* 100 client))) (<= (trusted-of-code d) client)))))
