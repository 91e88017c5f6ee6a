package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// decider knows from a message's index what becomes of it: 0 commit, 1 roll-back at once; 2 commit, 3 roll-back when
// asked; modulo 4.
type decider struct{}

func (decider) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	index, err := strconv.Atoi(m.GetProperty("index"))
	check(err)
	switch index % 4 {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (decider) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	index, err := strconv.Atoi(m.GetProperty("index"))
	check(err)
	emit(line{
		"event": "checked", "i": index, "topic": m.Topic, "transactionId": m.GetProperty("UNIQ_KEY"),
		"bodyLength": len(m.Body),
	})
	if index%2 == 0 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

// transact sends, then answers checks until the end of input.
func transact(namesrv, topic, group, first, count string) {
	i, err := strconv.Atoi(first)
	check(err)
	number, err := strconv.Atoi(count)
	check(err)
	p, err := rocketmq.NewTransactionProducer(
		decider{},
		producer.WithNameServer([]string{namesrv}),
		producer.WithCredentials(credentials()),
		producer.WithGroupName(group),
		producer.WithInstanceName(group+strconv.Itoa(os.Getpid())),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(30*time.Second),
	)
	check(err)
	check(p.Start())
	for end := i + number; i < end; i++ {
		result, err := p.SendMessageInTransaction(context.Background(), message(topic, i))
		check(err)
		fields := sendFields("transaction", i, result.SendResult)
		fields["transactionId"] = result.TransactionID
		emit(fields)
	}
	emit(line{"event": "started"})
	io.Copy(io.Discard, os.Stdin)
	check(p.Shutdown())
	emit(line{"event": "done"})
}
