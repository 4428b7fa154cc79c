package certmagiclock_test

import (
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/sqllock/sqllock"
	certmagiclock "github.com/sqllock/sqllock/certmagic"
	"github.com/sqllock/sqllock/locktest"
)

// renewals is a Storage that notes what CertMagic was told when it renewed leases.
type renewals struct {
	*certmagiclock.Storage
	results []error
}

func (r *renewals) RenewLockLease(ctx context.Context, name string, d time.Duration) error {
	err := r.Storage.RenewLockLease(ctx, name, d)
	r.results = append(r.results, err)
	return err
}

// failingOnce is an authority whose first try fails.
type failingOnce struct {
	authority
	tries      int
	first      func() // is called by the first try
	afterwards func() // by each other one
}

func (f *failingOnce) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if f.tries++; f.tries == 1 {
		f.first()
		return nil, errors.New("the first try fails")
	}
	f.afterwards()
	return f.authority.Issue(ctx, csr)
}

// CertMagic tries again after 1 minute, 2 minutes, and so on.
func TestCertMagicRenewsTheLeaseBeforeEachTryInTheBackground(t *testing.T) {
	t.Parallel()
	const name, lock = "issue_cert_www.example.com", "tls/issue_cert_www.example.com"
	for what, c := range map[string]struct {
		between func(t *testing.T, d *locktest.Database, other *certmagiclock.Storage)
		want    []error // of the renewals
	}{
		"the lease is held": {func(*testing.T, *locktest.Database, *certmagiclock.Storage) {}, []error{nil, nil}},
		"the lease is lost": {func(_ *testing.T, d *locktest.Database, _ *certmagiclock.Storage) { d.Lose(lock) }, []error{nil, nil}},
		"the lease is lost, and another server holds the name for 2 minutes": {func(t *testing.T, d *locktest.Database, other *certmagiclock.Storage) {
			d.Lose(lock)
			mustTry(t, other, name, true)
			time.AfterFunc(2*time.Minute, func() { mustUnlock(t, other, name) })
		}, []error{nil, sqllock.ErrHeld, nil}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, dir := locktest.NewDatabase(t), t.TempDir()
				other := newStorage(t, d.Locker(nil), dir)
				storage := &renewals{Storage: newStorage(t, d.Locker(nil), dir)}
				issuer := &failingOnce{authority: authority{journal: filepath.Join(dir, "journal")}}
				issuer.first = func() { c.between(t, d, other) }
				issuer.afterwards = func() { mustTry(t, other, name, false) } // it is held
				obtainInTheBackground(t, storage, issuer)
				if n := issued(t, dir); n != 1 || issuer.tries != 2 {
					t.Errorf("%d certificates were issued in %d tries", n, issuer.tries)
				}
				if len(storage.results) != len(c.want) {
					t.Fatalf("the renewals are %v", storage.results)
				}
				for i, err := range storage.results {
					if !errors.Is(err, c.want[i]) {
						t.Errorf("renewal %d: %v, want %v", i, err, c.want[i])
					}
				}
				mustTry(t, other, name, true) // it was unlocked
				mustUnlock(t, other, name)
			})
		})
	}
}

// obtainInTheBackground obtains a certificate as CertMagic does in the background. It returns when
// CertMagic has it.
func obtainInTheBackground(t *testing.T, storage certmagic.Storage, issuer certmagic.Issuer) {
	t.Helper()
	var magic *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
	})
	defer cache.Stop()
	magic = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{issuer}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := magic.ObtainCertAsync(ctx, "www.example.com"); err != nil {
		t.Errorf("ObtainCertAsync: %v", err)
	}
}
