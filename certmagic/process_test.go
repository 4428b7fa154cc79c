package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	certmagiclock "github.com/sqllock/sqllock/certmagic"
	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
)

// The environment of the processes that tests start.
const (
	envEngine = "CERTMAGICLOCK_TEST_ENGINE" // else it is no such process
	envDSN    = "CERTMAGICLOCK_TEST_DSN"
	envDir    = "CERTMAGICLOCK_TEST_DIR"
	envTTL    = "CERTMAGICLOCK_TEST_TTL"
	envTakes  = "CERTMAGICLOCK_TEST_TAKES" // how long it takes to issue a certificate
)

const (
	// shortTTL is one that a test waits for.
	shortTTL = 2 * time.Second
	// longTTL is one that no process loses because the machine is away for a while.
	longTTL = 10 * time.Second
)

// authority issues certificates, and notes each in a file.
type authority struct {
	journal string
	takes   time.Duration
}

var _ certmagic.Issuer = (*authority)(nil)

func (a *authority) IssuerKey() string { return "authority" }

func (a *authority) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	fmt.Println("issues")
	select {
	case <-time.After(a.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file, err := os.OpenFile(a.journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(file, csr.DNSNames)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	text := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, text, text, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// replica is a server of a cluster that needs a certificate, as soon as its input is closed.
func replica() (err error) {
	engine, name := os.Getenv(envEngine), "mysql"
	switch engine {
	case testdb.Postgres:
		name = "pgx"
	case testdb.SQLite:
		name = "sqlite"
	}
	takes, err := time.ParseDuration(os.Getenv(envTakes))
	if err != nil {
		return err
	}
	ttl, err := time.ParseDuration(os.Getenv(envTTL))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	db, err := sql.Open(name, os.Getenv(envDSN))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	locks, err := openLocks(ctx, engine, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	dir := os.Getenv(envDir)
	storage, err := certmagiclock.New(&certmagic.FileStorage{Path: dir}, locks, "tls/", sqllock.TTL(ttl))
	if err != nil {
		return err
	}
	var magic *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
	})
	defer cache.Stop()
	magic = certmagic.New(cache, certmagic.Config{
		Storage: storage, Issuers: []certmagic.Issuer{&authority{filepath.Join(dir, "journal"), takes}},
	})
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return magic.ObtainCertSync(ctx, "www.example.com")
}

// start starts a replica and returns when it is ready.
func start(t *testing.T, d *testdb.Database, dir string, ttl, takes time.Duration) *process.Process {
	t.Helper()
	p := process.Start(t, envEngine+"="+d.Engine(), envDSN+"="+d.DSN(), envDir+"="+dir, envTTL+"="+ttl.String(), envTakes+"="+takes.String())
	p.Expect("ready")
	return p
}

// issued counts the certificates that were issued.
func issued(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		t.Error(err)
	}
	return strings.Count(string(text), "[www.example.com]")
}

func TestOneOfThreeProcessesObtainsTheCertificate(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d, dir := testdb.New(t, engine), t.TempDir()
			all := []*process.Process{}
			for range 3 {
				all = append(all, start(t, d, dir, longTTL, longTTL+longTTL/2))
			}
			for _, p := range all {
				p.CloseInput()
			}
			for _, p := range all {
				if err := p.Wait(); err != nil {
					t.Error(err)
				}
			}
			if n := issued(t, dir); n != 1 {
				t.Errorf("%d certificates were issued", n)
			}
			if _, err := os.Stat(filepath.Join(dir, "locks")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the locks of the inner storage were used: %v", err)
			}
		})
	}
}

func TestAnotherProcessObtainsTheCertificateWhenTheFirstIsKilled(t *testing.T) {
	t.Parallel()
	d, dir := testdb.New(t, testdb.Postgres), t.TempDir()
	first := start(t, d, dir, shortTTL, testTimeout)
	first.CloseInput()
	first.Expect("issues")
	second := start(t, d, dir, longTTL, 0)
	second.CloseInput()
	first.Signal(os.Kill)
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	if n := issued(t, dir); n != 1 {
		t.Errorf("%d certificates were issued", n)
	}
}
