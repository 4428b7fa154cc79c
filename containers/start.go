package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// localhost is where the servers listen. They have a password, as everybody on
// this machine can connect to them.
const localhost = "127.0.0.1"

// start starts the server in a container and sets its dsn when it answers queries. The
// image must be present. The watchdog finds the container by its label.
func (s *server) start(ctx context.Context, label, password string) error {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // a server that is starting breaks connections
	port, err := network.ParsePort(s.port)
	if err != nil {
		return fmt.Errorf("bug: %w", err)
	}
	began := time.Now()
	dsn := func(_ string, mapped network.Port) string {
		return s.address(net.JoinHostPort(localhost, mapped.Port()), password)
	}
	c, err := testcontainers.Run(ctx, s.image,
		testcontainers.WithExposedPorts(s.port),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{port: {{HostIP: netip.MustParseAddr(localhost)}}}
		}),
		testcontainers.WithEnv(map[string]string{s.password: password}),
		testcontainers.WithCmd(s.args...),
		testcontainers.WithLabels(map[string]string{labelKey: label}),
		testcontainers.WithWaitStrategyAndDeadline(startTimeout, wait.ForSQL(s.port, s.driver, dsn)),
	)
	if err != nil {
		return fmt.Errorf("%s does not start from the image %s: %s%s", s.name, s.image, oneLine(err), lastWords(c))
	}
	mapped, err := c.MappedPort(ctx, s.port)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.dsn = dsn("", mapped)
	say("%s, from %s, listens on %s:%s after %v",
		s.name, s.image, localhost, mapped.Port(), time.Since(began).Round(100*time.Millisecond))
	return nil
}

// lastWords returns the end of a container's log, for people.
func lastWords(c *testcontainers.DockerContainer) string {
	if c == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	log, err := c.Logs(ctx)
	if err != nil {
		return ""
	}
	defer log.Close()
	text, _ := io.ReadAll(log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "; its log ends:\n" + strings.Join(lines[max(0, len(lines)-20):], "\n")
}
