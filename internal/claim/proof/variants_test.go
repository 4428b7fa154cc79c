package proof

// broken is a variant of the model, and what breaks in it.
type broken struct {
	variant
	action string // the step that breaks something; none: something does not follow from the rules any more
	breaks string // what does not hold after it: a rule, a promise of all steps, or what follows from the rules
}

// variants are wrong ways to do it, each of which must break the proof.
var variants = []broken{
	{variant{"the deadline counts from the reply", `(forall ((q Req)) (= (stage! q) (ite (= q r) heard (stage q))))
  (only stage)))`, `(forall ((q Req)) (and (= (stage! q) (ite (= q r) heard (stage q)))
    (= (from! q) (ite (= q r) (local (of r)) (from q))) (= (began! q) (ite (= q r) now (began q)))))
  (only stage from began)))`}, "Hear", "who-may-trust-holds"},
	{variant{"no margin for clocks that drift", `(- d (div d 100) 2000)`, `d`}, "", "deadline-ends-before-the-term"},
	{variant{"a client's clock stops while its machine is suspended",
		`(forall ((r Req)) (=> (not (= (stage r) unsent)) (<= (least (- now! (began r))) (- (local! (of r)) (from r)))))
  (only now local)`, `(only now local)`}, "Tick", "deadline-ends-before-the-term"},
	{variant{"a take-over that does not look at the expiry", `(not (= holder nobody)) (<= until now) (not row-is-pinned) (<= not-before now) (< now e)`,
		`(not (= holder nobody)) (not row-is-pinned) (<= not-before now) (< now e)`}, "TakeOver", "deadline-ends-before-the-term"},
	{variant{"a take-over that passes a guard", `(not (= holder nobody)) (<= until now) (not row-is-pinned) (<= not-before now) (< now e)`,
		`(not (= holder nobody)) (<= until now) (<= not-before now) (< now e)`}, "TakeOver", "what-is-guarded-goes-on"},
	{variant{"a renewal that revives", `(= version t) (< now until) (<= until e)
  (= until! e)`, `(= version t) (<= until e)
  (= until! e)`}, "Renew", "nothing-is-revived"},
	{variant{"a renewal that shortens", `(= version t) (< now until) (<= until e)`, `(= version t) (< now until)`}, "Renew", "nothing-is-shortened"},
	{variant{"a renewal of another's term", `(may-hold-alone a) (= holder a) (= version t) (< now until) (<= until e)
  (= until! e)
  (durably until)`, `(may-hold-alone a) (not (= holder nobody)) (< now until) (<= until e)
  (= until! e) (= holder! a)
  (durably holder until)`}, "Renew", "deadline-ends-before-the-term"},
	{variant{"a renewal that is not flushed", `(= until! e)
  (durably until)))`, `(= until! e)
  (only until)))`}, "Renew", "what-is-held-is-flushed"},
	{variant{"a renewal of a claim that has expired", `(not (renewing a)) (< now (ends a)) (<= (ends a) e)`,
		`(not (renewing a)) (<= (ends a) e)`}, "BeginRenewal", "nothing-is-revived"},
	{variant{"a grant that does not raise the version", `is-free nobody-shares (< now e)
  (holds-alone a e)
  (durably holder version until top)`, `is-free nobody-shares (< now e)
  (= holder! a) (= until! e)
  (durably holder until)`}, "Grant", "tokens-rise"},
	{variant{"a grant that is not flushed", `is-free nobody-shares (< now e)
  (holds-alone a e)
  (durably holder version until top)`, `is-free nobody-shares (< now e)
  (holds-alone a e)
  (only holder version until top)`}, "Grant", "what-is-held-is-flushed"},
	{variant{"a grant that does not look at the claims", `is-free (= holding 0) (= waiting 0) (< now e)`, `is-free (< now e)`},
		"GrantByRow", "one-holds-or-some-share"},
	{variant{"a version that takes the clock alone", `(ite (< version now) now (+ version 1))`, `now`}, "Grant", "tokens-rise"},
	{variant{"a hand-over that keeps the version", `(waits a) (<= not-before now) (< now e)
  (holds-alone a e) (waits-no-more a)
  (durably holder version until top waiting`, `(waits a) (<= not-before now) (< now e)
  (= holder! a) (= until! e) (waits-no-more a)
  (durably holder until waiting`}, "HandOver", "tokens-rise"},
	{variant{"a reader beside an exclusive holder", `(= (kind a) shared) is-free nobody-shares (not (waits a))`,
		`(= (kind a) shared) nobody-shares (not (waits a))`}, "GrantFirstReader", "one-holds-or-some-share"},
	{variant{"a reader who raises the version for all", `(shares-too a version 0 e)
  (durably holding`, `(= version! next-version) (= top! version!) (shares-too a version! 0 e)
  (durably version top holding`}, "GrantNextReader", "readers-have-one-token"},
	{variant{"a permit into a slot that is taken", `(and (= (kind c) permit) (not (= (slot c) s)))`, `(= (kind c) permit)`},
		"GrantPermit", "permits-have-their-slots"},
	{variant{"a permit more than there are", `(< s permits) (< holding permits)`, `(< s permits)`}, "GrantPermit", "permits-are-not-exceeded"},
	{variant{"a permit beside readers", `(and (= (kind c) permit) (not (= (slot c) s)))`, `(not (= (slot c) s))`},
		"GrantPermit", "kinds-do-not-mix"},
	{variant{"permits with one token", `(= version! next-version) (= top! version!) (shares-too a version! s e)
  (durably version top holding`, `(shares-too a version s e)
  (durably holding`}, "GrantPermit", "tokens-rise"},
	{variant{"a release of whatever there is", `(over a) (not (= a nobody)) (= holder a) (= version t) (not (pinned a))`,
		`(over a) (not (= a nobody)) (not (pinned a))`}, "Release", "deadline-ends-before-the-term"},
	{variant{"a cleanup while the lease lives", `(define-fun Withdraw ((a Acq) (n Int)) Bool (and
  (over a)`, `(define-fun Withdraw ((a Acq) (n Int)) Bool (and`}, "Withdraw", "deadline-ends-before-the-term"},
	{variant{"a release that passes a guard", `(over a) (not (= a nobody)) (= holder a) (= version t) (not (pinned a))`,
		`(over a) (not (= a nobody)) (= holder a) (= version t)`}, "Release", "what-is-guarded-goes-on"},
	{variant{"a release that is counted twice", `(= holding! (- holding 1))`, `(= holding! (- holding 2))`},
		"ReleaseClaim", "counts-are-high-enough"},
	{variant{"a reader that is not counted", `(= holding! (+ holding 1))`, `(= holding! holding)`},
		"GrantNextReader", "counts-are-high-enough"},
	{variant{"the end of a claim that is being renewed", `(and (shares a) (not (pinned a)) (not (renewing a)))`,
		`(and (shares a) (not (pinned a)))`}, "ExpireClaim", "what-is-renewed-goes-on"},
	{variant{"the end of a claim that has not expired", `(may-be-ended a) (<= (ends a) now)`, `(may-be-ended a)`},
		"ExpireClaim", "deadline-ends-before-the-term"},
	{variant{"a sweep that does not look at the expiry", `(not (= holder nobody)) (<= until now) (not row-is-pinned)
  (= holder! nobody)`, `(not (= holder nobody)) (not row-is-pinned)
  (= holder! nobody)`}, "Expire", "deadline-ends-before-the-term"},
	{variant{"a revocation that passes a guard", `(not row-is-pinned) (forall ((c Acq)) (=> (shares c) (may-be-ended c)))`,
		`(forall ((c Acq)) (=> (shares c) (may-be-ended c)))`}, "Revoke", "what-is-guarded-goes-on"},
	{variant{"a revocation that tells no holder", `(= revoked! top) (= version! next-version) (= top! version!) (= not-before! 0)
  (durably holder holding shares version top revoked not-before)`, `(= version! next-version) (= top! version!) (= not-before! 0)
  (durably holder holding shares version top not-before)`}, "Revoke", "deadline-ends-before-the-term"},
	{variant{"a term that is detached while it is trusted", `(over a) (may-hold-alone a) (= holder a) (= version t) (< now until) (not row-is-pinned) (not (= k nobody))`,
		`(may-hold-alone a) (= holder a) (= version t) (< now until) (not row-is-pinned) (not (= k nobody))`}, "Detach", "deadline-ends-before-the-term"},
	{variant{"an adoption that keeps the version", `(= (kind k) detached) (< now until) (not row-is-pinned) (< now e)
  (holds-alone a e)
  (durably holder version until top)`, `(= (kind k) detached) (< now until) (not row-is-pinned) (< now e)
  (= holder! a) (= until! e)
  (durably holder until)`}, "Adopt", "a-token-has-one-owner"},
	{variant{"a term that is resumed while its client lives", `(over b) (may-hold-alone a) (may-hold-alone b)`,
		`(may-hold-alone a) (may-hold-alone b)`}, "Resume", "deadline-ends-before-the-term"},
	{variant{"a guard that does not look at the token", `(or (and (may-hold-alone a) (= holder a) (= version t) (< now until))`,
		`(or (and (may-hold-alone a) (= holder a) (< now until))`}, "BeginGuard", "what-is-guarded-goes-on"},
	{variant{"UnlockTx in a transaction that does not guard", `(pinned a) (= holder a) (= version t) (not stranger) (<= not-before n)`,
		`(= version t) (not stranger) (<= not-before n)`}, "EndInTx", "deadline-ends-before-the-term"},
	{variant{"a row that is deleted when it is young", `(<= not-before now) (< version (- now retention))`, `(<= not-before now)`},
		"Purge", "tokens-are-old"},
	{variant{"a row that is deleted although it is held", `(= holder nobody) (= holding 0) (= waiting 0) (not row-is-pinned) (<= not-before now) (< version (- now retention))
  (= version! 0) (= permits! 0) (= not-before! 0)
  (only version`, `(= holding 0) (= waiting 0) (not row-is-pinned) (<= not-before now) (< version (- now retention))
  (= holder! nobody) (= version! 0) (= permits! 0) (= not-before! 0)
  (only holder version`}, "Purge", "deadline-ends-before-the-term"},
	{variant{"an answer from before the request", `(= (stage r) sent) (<= (began r) x) (<= x now)`, `(= (stage r) sent) (<= x now)`},
		"Answer", "who-may-trust-holds"},
	{variant{"a reply that is trusted after a release", `(not (over (of r))) (< revoked (received r))`, `(< revoked (received r))`},
		"Release", "deadline-ends-before-the-term"},
}
