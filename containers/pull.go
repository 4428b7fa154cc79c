package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// ensureImage pulls the server's image unless the engine has it. Testcontainers would
// retry for a quarter of an hour and hide the error of the engine.
func (s *server) ensureImage(ctx context.Context, c client.APIClient, idleTimeout time.Duration) error {
	_, err := c.ImageInspect(ctx, s.image)
	if err == nil {
		return nil
	}
	if errdefs.IsNotFound(err) {
		say("pulling %s", s.image)
		err = pull(ctx, c, s.image, idleTimeout)
	}
	if err != nil {
		return fmt.Errorf("%s cannot run: the image %s cannot be had: %s; %s names another one, or %q to do without",
			s.name, s.image, oneLine(err), s.imageVariable(), none)
	}
	return nil
}

// pull pulls an image. It gives up when there has been no progress for as long as
// patience: how long a pull may take depends on the network, but a registry that
// cannot be reached shows soon.
func pull(ctx context.Context, c client.APIClient, image string, idleTimeout time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(idleTimeout, func() { cancel(fmt.Errorf("no progress for %v", idleTimeout)) })
	defer stalled.Stop()

	var words string // the last message of the engine, which may name the cause
	done := make(progress)
	err := follow(ctx, c, image, func(m *jsonstream.Message) {
		words = strings.TrimSpace(m.ID + " " + m.Status)
		if done.add(m) {
			stalled.Reset(idleTimeout)
		}
	})
	switch {
	case ctx.Err() != nil && words != "":
		return fmt.Errorf("%w after %q", context.Cause(ctx), words)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	_, err = c.ImageInspect(ctx, image)
	return err
}

// follow pulls an image and prints the messages of the engine.
func follow(ctx context.Context, c client.APIClient, image string, show func(*jsonstream.Message)) error {
	response, err := c.ImagePull(ctx, image, client.ImagePullOptions{RegistryAuth: credentials(ctx, image)})
	if err != nil {
		return err
	}
	for m, err := range response.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}
		show(&m)
	}
	return nil
}

// credentials returns the credentials that "docker login" has stored for the image's
// registry, or "" for a public image.
func credentials(ctx context.Context, image string) string {
	_, auth, err := testcontainers.DockerImageAuth(ctx, image)
	if err != nil {
		return ""
	}
	encoded, err := authconfig.Encode(auth)
	if err != nil {
		return ""
	}
	return encoded
}

// progress is the progress of each layer, by its id and its step.
type progress map[string]int64

// add reports whether a message shows progress. A failed layer that will be retried is no
// progress.
func (p progress) add(m *jsonstream.Message) bool {
	if strings.HasPrefix(m.Status, "Retrying") {
		return false
	}
	var now int64
	if m.Progress != nil {
		now = m.Progress.Current
	}
	step := m.ID + " " + m.Status
	before, known := p[step]
	p[step] = max(before, now)
	return !known || now > before
}

// oneLine returns the text of an error without line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
