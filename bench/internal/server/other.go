package server

import (
	"time"

	"github.com/sqllock/sqllock/internal/peerserver"
)

// zookeeperTick is the default of ZooKeeper's own configuration.
const zookeeperTick = 2 * time.Second

// others are the servers that are no SQL databases.
var others = []kind{
	other(Redis, peerserver.Redis(false)), other(RedisAlways, peerserver.Redis(true)),
	other(Etcd, peerserver.Etcd()), other(ZooKeeper, peerserver.ZooKeeper(zookeeperTick)),
}

func other(name string, s peerserver.Server) kind {
	return kind{
		name:     name,
		accounts: s.Accounts,
		find:     func() ([]string, error) { return lookUp(nil, s.Program) },
		serve: func(p []string, dir string, port int) ([]string, error) {
			return s.Serve(p[0], dir, port)
		},
		probe: func(addr string) (string, string, error) {
			version, err := s.Probe(addr)
			return version, s.Settings, err
		},
	}
}
