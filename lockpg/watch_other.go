//go:build !linux

package lockpg

import "net"

// watch does nothing: that the connection is closed shows when it is used.
func watch(net.Conn, func()) (stop func()) { return func() {} }
