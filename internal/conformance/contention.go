package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

// contentionPromises also show that tokens rise when many lock and unlock at once: every
// visit compares its token with that of the visit before.
var contentionPromises = []promise{
	{sentence: "200 goroutines of two Lockers never overlap on 50 names", test: testGoroutineContention},
	{sentence: "three processes never overlap and lose no update", test: testProcessContention},
}

// work is a number of visits to resources that only one may use at a time. The
// resources are files, so that several processes can be sent to them.
type work struct {
	Dir       string
	Prefix    string // of the names of the resources
	Resources int
	Visits    int
	Seed      uint64
}

// run makes the visits, each under the lock of its resource.
func (w *work) run(l *sqllock.Locker) answer {
	r := rand.New(rand.NewPCG(w.Seed, 0))
	ctx, cancel := context.WithTimeout(context.Background(), 3*timeLimit)
	defer cancel()
	for range w.Visits {
		resource := strconv.Itoa(r.IntN(w.Resources))
		err := l.Do(ctx, w.Prefix+resource, func(ctx context.Context, lease *sqllock.Lease) error {
			return w.visit(filepath.Join(w.Dir, resource), lease)
		})
		if err != nil {
			return failure(err)
		}
	}
	return answer{}
}

// visit fails if somebody else uses the resource, or if somebody did with a token
// that is not lower. It adds one to the count of the visits, with a pause in
// which another would do damage.
func (w *work) visit(resource string, lease *sqllock.Lease) error {
	marker, err := os.OpenFile(resource+".in-use", os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("somebody uses it: %w", err)
	}
	_ = marker.Close()
	count, last, err := readResource(resource)
	if err != nil {
		return err
	}
	if lease.Token() <= last {
		return fmt.Errorf("token %d follows token %d", lease.Token(), last)
	}
	time.Sleep(200 * time.Microsecond)
	if err := os.WriteFile(resource, fmt.Appendln(nil, count+1, lease.Token()), 0o600); err != nil {
		return err
	}
	return os.Remove(resource + ".in-use")
}

func readResource(resource string) (count, token int64, err error) {
	b, err := os.ReadFile(resource)
	if os.IsNotExist(err) {
		return 0, 0, nil
	}
	if err == nil {
		_, err = fmt.Sscan(string(b), &count, &token)
	}
	return count, token, err
}

// visits counts the visits of all.
func (e *env) visits(w *work) (sum int64) {
	e.Helper()
	for i := range w.Resources {
		n, _, err := readResource(filepath.Join(w.Dir, strconv.Itoa(i)))
		if err != nil {
			e.Error(err)
		}
		sum += n
	}
	return sum
}

func testGoroutineContention(e *env) {
	const goroutines = 200
	job := work{Dir: e.TempDir(), Prefix: e.name(""), Resources: 50, Visits: 4}
	if e.h.slow() || e.h.Nodes > 1 { // the nodes may share one machine, or one file
		job.Visits = 1
	}
	var lockers []*sqllock.Locker
	for range 2 { // each with a pool of its own, of which a lock may take a connection
		db, _ := e.open(e.source(), poolSize)
		lockers = append(lockers, e.lockerOn(db, &Options{TTL: long, RetryMax: 50 * time.Millisecond}))
	}
	var wg sync.WaitGroup
	for i := range goroutines {
		w := job
		w.Seed = uint64(i)
		wg.Go(func() {
			if a := w.run(lockers[i%len(lockers)]); a.Err != "" {
				e.Error(a.Err)
			}
		})
	}
	wg.Wait()
	if n := e.visits(&job); n != goroutines*int64(job.Visits) {
		e.Errorf("%d visits were counted, %d were made", n, goroutines*job.Visits)
	}
}

func testProcessContention(e *env) {
	const processes = 3
	job := work{Dir: e.TempDir(), Prefix: e.name(""), Resources: 3, Visits: 40}
	var children []*process
	for i := range processes {
		children = append(children, e.start(long, fmt.Sprint("process ", i)))
	}
	for i, p := range children {
		w := job
		w.Seed = uint64(i)
		p.send(order{Do: "work", Work: &w})
	}
	for _, p := range children {
		if a := p.readWithin(3 * timeLimit); a.Err != "" {
			e.Error(a.Err)
		}
	}
	if n := e.visits(&job); n != processes*int64(job.Visits) {
		e.Errorf("%d visits were counted, %d were made", n, processes*job.Visits)
	}
}

// sharedResource is what readers and writers use. It hears of everybody who
// comes in, while he is in.
type sharedResource struct {
	mu      sync.Mutex
	readers int
	writers int
	wrote   int64 // the highest token of a writer
	read    int64 // the highest token of a reader
	visits  int
}

// enter notes that somebody is in. It returns what is wrong with that.
func (r *sharedResource) enter(lease *sqllock.Lease) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.visits++
	token := lease.Token()
	if lease.Shared() {
		r.readers++
		if r.writers > 0 {
			return fmt.Errorf("a reader is in beside %d writers", r.writers)
		}
		if token <= r.wrote {
			return fmt.Errorf("a reader with token %d follows a writer with token %d", token, r.wrote)
		}
		r.read = max(r.read, token)
		return nil
	}
	r.writers++
	if r.writers > 1 || r.readers > 0 {
		return fmt.Errorf("%d writers and %d readers are in", r.writers, r.readers)
	}
	if token <= r.wrote || token <= r.read {
		return fmt.Errorf("a writer with token %d follows writers up to %d and readers up to %d", token, r.wrote, r.read)
	}
	r.wrote = token
	return nil
}

func (r *sharedResource) leave(lease *sqllock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lease.Shared() {
		r.readers--
	} else {
		r.writers--
	}
}

// visit comes in once, as a reader or a writer.
func (r *sharedResource) visit(ctx context.Context, l *sqllock.Locker, name string, shared bool, stay time.Duration) error {
	lock := l.Lock
	if shared {
		lock = l.RLock
	}
	lease, err := lock(ctx, name)
	if err != nil {
		return err
	}
	wrong := r.enter(lease)
	time.Sleep(stay)
	if err := context.Cause(lease.Context()); err != nil && wrong == nil {
		wrong = fmt.Errorf("lost on the way: %w", err)
	}
	r.leave(lease)
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	return wrong
}

func testReaderWriterContention(e *env) {
	const lockers, goroutines, names = 2, 8, 2
	rounds := 12
	if e.h.slow() {
		rounds = 4
	}
	prefix, resources := e.name(""), [names]sharedResource{}
	ctx, cancel := context.WithTimeout(context.Background(), 3*timeLimit)
	defer cancel()
	var wg sync.WaitGroup
	for range lockers {
		db, _ := e.open(e.source(), e.poolLimit()/2)
		l := e.lockerOn(db, &Options{TTL: long, RetryMax: 20 * time.Millisecond})
		for seed := range uint64(goroutines) {
			r := rand.New(rand.NewPCG(seed, uint64(rounds)))
			wg.Go(func() {
				for range rounds {
					k := r.IntN(names)
					stay := time.Duration(r.IntN(2000)) * time.Microsecond
					if err := resources[k].visit(ctx, l, fmt.Sprint(prefix, k), r.IntN(4) > 0, stay); err != nil {
						e.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	visits := 0
	for i := range resources {
		visits += resources[i].visits
	}
	if want := lockers * goroutines * rounds; visits != want {
		e.Errorf("%d visits were counted, %d were made", visits, want)
	}
}
