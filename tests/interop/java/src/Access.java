import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Clients with and without credentials, all in one process: {@code NAMESRV}, then a line of its input for each step,
 *
 * <pre>
 * ID ACCESS_KEY SECRET_KEY STEP TOPIC COUNT       "-" as a key: nothing is signed
 * </pre>
 *
 * <p>Steps run at the same time: send (in four ways), trace, one (a single send), transact (commit, roll back, commit
 * when asked, by turns), ask (which answers, too), push (refuses 1 once and 2 always), orderly (refuses 1 once), lite,
 * pull. Groups are the topic's name with {@code _p} and {@code _g}. A step ends with a line "end", and an error's class,
 * code and text in it.
 */
public final class Access {
    private static final int WAIT_S = 60;
    private static final int QUIET_S = 3;
    private static final Collection<DefaultMQProducer> OPEN = new ArrayList<>();
    private static String namesrv;

    private final String id;
    private final String key;
    private final String secret;
    private final String topic;
    private final int count;

    private Access(String[] words) {
        id = words[0];
        key = words[1];
        secret = words[2];
        topic = words[4];
        count = Integer.parseInt(words[5]);
    }

    /** A step. */
    private interface Step {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        ExecutorService pool = Executors.newCachedThreadPool();
        emit("{\"event\": \"started\"}");
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            Access access = new Access(words);
            pool.execute(() -> access.end(access.step(words[3])));
        }
        pool.shutdown();
        pool.awaitTermination(WAIT_S, TimeUnit.SECONDS);
        for (DefaultMQProducer producer : OPEN) {
            producer.shutdown();
        }
        emit("{\"event\": \"done\"}");
        System.exit(0);
    }

    private Step step(String name) {
        switch (name) {
            case "send":
                return this::send;
            case "one":
                return this::one;
            case "trace":
                return this::trace;
            case "transact":
                return this::transact;
            case "ask":
                return this::ask;
            case "push":
                return () -> push(false);
            case "orderly":
                return () -> push(true);
            case "lite":
                return this::lite;
            case "pull":
                return this::pull;
            default:
                throw new IllegalArgumentException(name);
        }
    }

    private void end(Step step) {
        String refused = "";
        try {
            step.run();
        } catch (Throwable error) {
            refused = shown(error);
        }
        emit("{\"event\": \"end\", \"id\": \"" + id + "\"" + refused + "}");
    }

    private static String shown(Throwable error) {
        return ", \"error\": \"" + error.getClass().getSimpleName() + "\", \"code\": " + code(error)
            + ", \"text\": \"" + ("" + error.getMessage()).replaceAll("[^ -!#-\\[\\]-~]", " ") + "\"";
    }

    private void failed(Throwable error) {
        emit("{\"event\": \"failed\", \"id\": \"" + id + "\"" + shown(error) + "}");
    }

    private static int code(Throwable error) {
        if (error instanceof MQBrokerException) {
            return ((MQBrokerException) error).getResponseCode();
        }
        return error instanceof MQClientException ? ((MQClientException) error).getResponseCode() : 0;
    }

    private RPCHook hook() {
        return key.equals("-") ? null : new AclClientRPCHook(new SessionCredentials(key, secret));
    }

    private <T extends ClientConfig> T configured(T client) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName(id + "-" + topic);
        client.setPollNameServerInterval(1_000);
        client.setPersistConsumerOffsetInterval(1_000);
        client.setVipChannelEnabled(false);
        client.setMqClientApiTimeout(20_000);
        return client;
    }

    private DefaultMQProducer producer(String role, boolean traced) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(topic + role, hook(), traced, null));
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        return producer;
    }

    private Message message(int i) {
        Message message = new Message(topic, "tag", "key-" + i, ("body " + i).getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("index", Integer.toString(i));
        return message;
    }

    private void send() throws Exception {
        DefaultMQProducer producer = producer("_p", false);
        try {
            awaitRoute(producer);
            for (int i = 0; i < count; i++) {
                sent(producer.send(message(i)));
            }
            CountDownLatch left = new CountDownLatch(count);
            for (int i = count; i < 2 * count; i++) {
                producer.send(message(i), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        sent(result);
                        left.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        left.countDown();
                    }
                });
            }
            left.await(WAIT_S, TimeUnit.SECONDS);
            List<Message> batch = new ArrayList<>();
            for (int i = 2 * count; i < 3 * count; i++) {
                batch.add(message(i));
            }
            sent(producer.send(batch));
            for (int i = 3 * count; i < 4 * count; i++) {
                producer.sendOneway(message(i));
            }
            Thread.sleep(300);
        } finally {
            producer.shutdown();
        }
    }

    /** Waits until the client knows the topic's route: it gives up a lock after three seconds, which a busy machine may take. */
    private void awaitRoute(DefaultMQProducer producer) throws Exception {
        for (int second = 0; second < WAIT_S; second++) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException unknown) {
                Thread.sleep(1_000);
            }
        }
    }

    /** Waits until so many messages of the topic are stored; the answer to a question about a transaction has no reply. */
    private void awaitStored(DefaultMQProducer producer, long wanted) throws Exception {
        for (int tenth = 0; tenth < 10 * WAIT_S; tenth++) {
            long stored = 0;
            for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
                stored += producer.maxOffset(queue);
            }
            if (stored >= wanted) {
                return;
            }
            Thread.sleep(100);
        }
    }

    private void one() throws Exception {
        DefaultMQProducer producer = producer("_p", false);
        try {
            sent(producer.send(message(0)));
        } finally {
            producer.shutdown();
        }
    }

    private void trace() throws Exception {
        DefaultMQProducer producer = producer("_t", true);
        synchronized (OPEN) {
            // The client of 5.3.3 leaves unsent what it has not sent after five seconds by itself.
            OPEN.add(producer);
        }
        for (int i = 0; i < count; i++) {
            sent(producer.send(message(i)));
        }
    }

    private void transact() throws Exception {
        CountDownLatch unknown = new CountDownLatch(count / 3);
        TransactionMQProducer producer = configured(new TransactionMQProducer(topic + "_p", hook()));
        producer.setSendMsgTimeout(20_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object index) {
                LocalTransactionState[] states = {
                    LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW,
                };
                return states[(Integer) index % 3];
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                unknown.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        try {
            awaitRoute(producer);
            for (int i = 0; i < count; i++) {
                sent(producer.sendMessageInTransaction(message(i), i));
            }
            need(unknown, "was asked about nothing");
            awaitStored(producer, count / 3 * 2);
        } finally {
            producer.shutdown();
        }
    }

    private void ask() throws Exception {
        DefaultMQProducer answering = producer("_a", false);
        DefaultMQPushConsumer consumer = consumer(false);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    answering.send(MessageUtil.createReplyMessage(message, message.getBody()), 5000);
                } catch (Exception error) {
                    failed(error);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        // Replies go to a client id; the one who asks is a client of its own.
        DefaultMQProducer asking = configured(new DefaultMQProducer(topic + "_p", hook()));
        asking.setInstanceName(id + "-asking-" + topic);
        asking.start();
        try {
            CountDownLatch left = new CountDownLatch(count);
            MessageQueueSelector any = (queues, message, index) -> (MessageQueue) queues.get((Integer) index % queues.size());
            for (int i = 0; i < count; i++) {
                asking.request(message(i), any, i, new RequestCallback() {
                    @Override
                    public void onSuccess(Message reply) {
                        emit("{\"event\": \"replied\", \"id\": \"" + id + "\", \"body\": \""
                            + new String(reply.getBody(), StandardCharsets.UTF_8) + "\"}");
                        left.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        failed(error);
                        left.countDown();
                    }
                }, 40_000);
            }
            need(left, "not all is answered");
        } finally {
            asking.shutdown();
            consumer.shutdown();
            answering.shutdown();
        }
    }

    private DefaultMQPushConsumer consumer(boolean traced) throws Exception {
        DefaultMQPushConsumer consumer = configured(
            new DefaultMQPushConsumer(topic + "_g", hook(), new AllocateMessageQueueAveragely(), traced, null));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private void push(boolean orderly) throws Exception {
        DefaultMQPushConsumer consumer = consumer(!orderly);
        ConcurrentHashMap<Integer, AtomicInteger> times = new ConcurrentHashMap<>();
        // One more of what is refused once; another of what is refused until it is dead.
        CountDownLatch left = new CountDownLatch(count + (orderly ? 1 : 2));
        consumer.setMaxReconsumeTimes(orderly ? 16 : 1);
        if (orderly) {
            consumer.setSuspendCurrentQueueTimeMillis(100);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                boolean refused = refused(messages, times, left, false);
                return refused ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(1);
                boolean refused = refused(messages, times, left, true);
                return refused ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        try {
            if (count == 0) {
                // Nothing is to come; who is refused learns of it from the log alone.
                Thread.sleep(QUIET_S * 1_000);
            } else {
                need(left, "not all arrived");
                settled(consumer);
            }
        } finally {
            consumer.shutdown();
        }
    }

    private boolean refused(
        List<MessageExt> messages, ConcurrentHashMap<Integer, AtomicInteger> times, CountDownLatch left, boolean dies) {
        boolean refused = false;
        for (MessageExt message : messages) {
            received(message);
            int i = Integer.parseInt(message.getUserProperty("index"));
            int time = times.computeIfAbsent(i, any -> new AtomicInteger()).getAndIncrement();
            refused |= i == 1 && time == 0 || dies && i == 2;
            left.countDown();
        }
        return refused;
    }

    /**
     * Waits until what the handler refused has been sent back, too. A client that is shut down before the reply sends
     * it once more as a new message, three times over.
     */
    private static void settled(DefaultMQPushConsumer consumer) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().values().stream()
            .anyMatch(queue -> queue.getMsgCount().get() > 0)) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("what was refused is not sent back");
            }
            Thread.sleep(20);
        }
        // The offset is noted a moment after the last message is taken off.
        Thread.sleep(200);
    }

    private void lite() throws Exception {
        DefaultLitePullConsumer consumer = configured(new DefaultLitePullConsumer(topic + "_l", hook()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, "*");
        consumer.start();
        try {
            int found = 0;
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (found < count && System.nanoTime() < end) {
                for (MessageExt message : consumer.poll(200)) {
                    received(message);
                    found++;
                }
            }
            consumer.commitSync();
            long committed = 0;
            for (MessageQueue queue : consumer.fetchMessageQueues(topic)) {
                committed += Math.max(0, consumer.committed(queue));
            }
            emit("{\"event\": \"committed\", \"id\": \"" + id + "\", \"sum\": " + committed + "}");
        } finally {
            consumer.shutdown();
        }
    }

    private void pull() throws Exception {
        DefaultMQPullConsumer consumer = configured(new DefaultMQPullConsumer(topic + "_l", hook()));
        consumer.start();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                PullResult result = consumer.pull(queue, "*", 0, 32);
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(this::received);
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    private static void need(CountDownLatch left, String what) throws Exception {
        if (!left.await(WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(what + ": " + left.getCount() + " are missing");
        }
    }

    private void sent(SendResult result) {
        emit("{\"event\": \"sent\", \"id\": \"" + id + "\", \"status\": \"" + result.getSendStatus() + "\", \"msgIds\": "
            + Arrays.toString(result.getMsgId().split(",")).replaceAll("([0-9A-F]+)", "\"$1\"") + "}");
    }

    private void received(MessageExt message) {
        emit("{\"event\": \"received\", \"id\": \"" + id + "\", \"i\": " + message.getUserProperty("index")
            + ", \"reconsumeTimes\": " + message.getReconsumeTimes() + "}");
    }

    private static synchronized void emit(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
