//go:build chromium

package web_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// chromium is a window of a headless Chromium, which a test controls by the DevTools protocol.
// Messages go through a pipe, each as JSON that ends with a zero byte. It is for one goroutine.
type chromium struct {
	t       *testing.T
	to      *os.File
	from    *os.File
	reader  *bufio.Reader
	window  string // its id
	session string
	calls   int
	found   []string // what a page should not do, as Chromium reports it
}

// message is a call, its answer, or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// params are those of a call.
type params map[string]any

// startChromium opens a window that is empty. It counts as visible.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	ours, theirs, profile := pipe(t), pipe(t), t.TempDir()
	cmd := exec.Command("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{ours[0], theirs[1]}
	if err := cmd.Start(); err != nil {
		t.Fatalf("Chromium is needed: %v", err)
	}
	_, _ = ours[0].Close(), theirs[1].Close()
	c := &chromium{t: t, to: ours[1], from: theirs[0], reader: bufio.NewReader(theirs[0])}
	t.Cleanup(func() {
		_ = ours[1].Close() // which ends it
		_ = cmd.Wait()
		eventually(t, "the profile is removed", func() bool { return os.RemoveAll(profile) == nil })
	})
	c.openWindow()
	return c
}

func pipe(t *testing.T) [2]*os.File {
	t.Helper()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = from.Close(), to.Close() })
	return [2]*os.File{from, to}
}

// openWindow opens a window before the others, and has it report what its pages do.
func (c *chromium) openWindow() {
	c.t.Helper()
	var window struct{ TargetID string }
	c.session = ""
	c.call("Target.createTarget", params{"url": "about:blank"}, &window)
	c.show(window.TargetID)
}

// show has a window be before the others, and controls that.
func (c *chromium) show(window string) {
	c.t.Helper()
	var attached struct{ SessionID string }
	c.session = ""
	c.call("Target.activateTarget", params{"targetId": window}, nil)
	c.call("Target.attachToTarget", params{"targetId": window, "flatten": true}, &attached)
	c.window, c.session = window, attached.SessionID
	for _, what := range []string{"Page", "Runtime", "Log", "Network"} {
		c.call(what+".enable", params{}, nil)
	}
	c.call("Page.addScriptToEvaluateOnNewDocument", params{"source": recordAlerts}, nil)
}

// recordAlerts counts what the texts of outputtest.Markup would do if they could.
const recordAlerts = `window.alerts = 0; window.alert = () => { window.alerts++ }`

// call sends a call and waits for its answer, which must be a success.
func (c *chromium) call(method string, p params, result any) {
	c.t.Helper()
	if err := c.try(method, p, result); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
}

// try is call, and returns the error that Chromium answers.
func (c *chromium) try(method string, p params, result any) error {
	c.t.Helper()
	c.send(method, p)
	for {
		m := c.read()
		switch {
		case m.ID == 0:
			c.note(m)
		case m.ID != c.calls:
			c.t.Fatalf("%s: the answer %d came instead of %d", method, m.ID, c.calls)
		case m.Error != nil:
			return fmt.Errorf("Chromium: %s", m.Error)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(m.Result, result)
		}
	}
}

func (c *chromium) send(method string, p params) {
	c.t.Helper()
	c.calls++
	m := message{ID: c.calls, SessionID: c.session, Method: method}
	var err error
	if m.Params, err = json.Marshal(p); err != nil {
		c.t.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = c.to.SetWriteDeadline(time.Now().Add(testTimeout))
	}
	if err == nil {
		_, err = c.to.Write(append(text, 0))
	}
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
}

func (c *chromium) read() (m message) {
	c.t.Helper()
	if err := c.from.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		c.t.Fatal(err)
	}
	text, err := c.reader.ReadBytes(0)
	if err == nil {
		err = json.Unmarshal(text[:len(text)-1], &m)
	}
	if err != nil {
		c.t.Fatalf("Chromium: %v", err)
	}
	return m
}

// note keeps what the console shows, errors, dialogs, and requests for something else than the
// page.
func (c *chromium) note(m message) {
	if bytes.Contains(m.Params, []byte("/favicon.ico")) { // for which Chromium asks, unless the policy forbids it
		return
	}
	switch m.Method {
	case "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening":
	case "Network.requestWillBeSent":
		var sent struct{ Request struct{ URL string } }
		if err := json.Unmarshal(m.Params, &sent); err == nil && strings.Contains(sent.Request.URL, prefix+"/") {
			return
		}
	default:
		return
	}
	c.found = append(c.found, fmt.Sprintf("%s: %s", m.Method, m.Params))
}

// open opens a page, and returns when all of it is there.
func (c *chromium) open(address string) {
	c.t.Helper()
	var loaded struct{ ErrorText string }
	c.call("Page.navigate", params{"url": address}, &loaded)
	if loaded.ErrorText != "" {
		c.t.Fatalf("%s: %s", address, loaded.ErrorText)
	}
	c.until(`document.readyState === "complete" && location.href !== "about:blank"`)
}

// value returns what an expression is in the page. A promise is awaited.
func value[T any](c *chromium, expression string) T {
	c.t.Helper()
	v, err := evaluate[T](c, expression)
	if err != nil {
		c.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func evaluate[T any](c *chromium, expression string) (v T, err error) {
	c.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	err = c.try("Runtime.evaluate", params{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if err == nil && answer.ExceptionDetails != nil {
		err = fmt.Errorf("it failed: %s", answer.ExceptionDetails)
	}
	if err == nil {
		err = json.Unmarshal(answer.Result.Value, &v)
	}
	return v, err
}

// until waits until an expression is true in the page. Between two pages it may fail.
func (c *chromium) until(expression string) {
	c.t.Helper()
	eventually(c.t, expression, func() bool { ok, err := evaluate[bool](c, expression); return err == nil && ok })
}

// untilShown waits until the part of the page that is kept up to date has a text.
func (c *chromium) untilShown(text string) {
	c.t.Helper()
	c.until(fmt.Sprintf(`document.getElementById("live").textContent.includes(%s)`, quote(text)))
}

// untilStatus waits until the page says this about itself.
func (c *chromium) untilStatus(status string) {
	c.t.Helper()
	c.until(fmt.Sprintf(`document.getElementById("status").textContent.includes(%s)`, quote(status)))
}

// quote returns a text as JavaScript writes it.
func quote(text string) string {
	q, _ := json.Marshal(text)
	return string(q)
}

// foundNothing fails the test if the console showed something, or a page asked for something
// that is not there.
func (c *chromium) foundNothing(what string) {
	c.t.Helper()
	value[int](c, "0") // what came before has been reported
	for _, text := range c.found {
		c.t.Errorf("%s: %s", what, text)
	}
	c.found = nil
}
