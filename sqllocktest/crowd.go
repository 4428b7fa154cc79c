package sqllocktest

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

var crowdPromises = []promise{
	{sentence: "200 goroutines of two Lockers never overlap on 50 names", test: testCrowd, alone: true},
	{sentence: "three processes never overlap and lose no update", test: testProcessCrowd, alone: true},
}

// work is a number of visits to places that only one may be in at a time. The
// places are files, so that several processes can be sent to them.
type work struct {
	Dir    string
	Prefix string // of the names of the places
	Places int
	Visits int
	Seed   uint64
}

// run makes the visits, each under the lock of its place.
func (w *work) run(l *sqllock.Locker) answer {
	r := rand.New(rand.NewPCG(w.Seed, 0))
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	for range w.Visits {
		place := strconv.Itoa(r.IntN(w.Places))
		err := l.Do(ctx, w.Prefix+place, func(ctx context.Context, lease *sqllock.Lease) error {
			return w.visit(filepath.Join(w.Dir, place), lease)
		})
		if err != nil {
			return failure(err)
		}
	}
	return answer{}
}

// visit fails if somebody else is in the place, or if somebody was with a token
// that is not lower. It adds one to the count of the visits, with a pause in
// which another would do damage.
func (w *work) visit(place string, lease *sqllock.Lease) error {
	door, err := os.OpenFile(place+".inside", os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("somebody is in: %w", err)
	}
	_ = door.Close()
	count, last, err := readPlace(place)
	if err != nil {
		return err
	}
	if lease.Token() <= last {
		return fmt.Errorf("token %d follows token %d", lease.Token(), last)
	}
	time.Sleep(200 * time.Microsecond)
	if err := os.WriteFile(place, fmt.Appendln(nil, count+1, lease.Token()), 0o600); err != nil {
		return err
	}
	return os.Remove(place + ".inside")
}

func readPlace(place string) (count, token int64, err error) {
	b, err := os.ReadFile(place)
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
	for i := range w.Places {
		n, _, err := readPlace(filepath.Join(w.Dir, strconv.Itoa(i)))
		if err != nil {
			e.Error(err)
		}
		sum += n
	}
	return sum
}

func testCrowd(e *env) {
	const goroutines = 200
	places := work{Dir: e.TempDir(), Prefix: e.name(""), Places: 50, Visits: 4}
	if e.h.slow() {
		places.Visits = 1
	}
	var lockers []*sqllock.Locker
	for range 2 { // each with a pool of its own, of which a lock may take a connection
		db, _ := e.open(e.source(), poolSize)
		lockers = append(lockers, e.lockerOn(db, &Options{TTL: long, RetryMax: 50 * time.Millisecond}))
	}
	var wg sync.WaitGroup
	for i := range goroutines {
		w := places
		w.Seed = uint64(i)
		wg.Go(func() {
			if a := w.run(lockers[i%len(lockers)]); a.Err != "" {
				e.Error(a.Err)
			}
		})
	}
	wg.Wait()
	if n := e.visits(&places); n != goroutines*int64(places.Visits) {
		e.Errorf("%d visits were counted, %d were made", n, goroutines*places.Visits)
	}
}

func testProcessCrowd(e *env) {
	const processes = 3
	places := work{Dir: e.TempDir(), Prefix: e.name(""), Places: 3, Visits: 40}
	var children []*process
	for i := range processes {
		children = append(children, e.start(long, fmt.Sprint("process ", i)))
	}
	for i, p := range children {
		w := places
		w.Seed = uint64(i)
		p.send(order{Do: "work", Work: &w})
	}
	for _, p := range children {
		if a := p.readWithin(3 * patience); a.Err != "" {
			e.Error(a.Err)
		}
	}
	if n := e.visits(&places); n != processes*int64(places.Visits) {
		e.Errorf("%d visits were counted, %d were made", n, processes*places.Visits)
	}
}
