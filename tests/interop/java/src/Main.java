import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The Java client as a command: every result is one JSON object per line on standard output.
 *
 * <p>The same source compiles against the clients 4.9.7 and 5.3.3.
 *
 * <pre>
 * produce NAMESRV TOPIC GROUP FIRST MODE:COUNT...   modes: sync, async, oneway, batch
 * consume NAMESRV ROLE:GROUP:TOPIC[,TOPIC]...       roles: clustering, broadcasting, retry; until end of input,
 *                                                   whose lines are "produce TOPIC GROUP FIRST MODE:COUNT..."
 * inspect NAMESRV GROUP                             commands on standard input, see {@link #inspect}
 * </pre>
 */
public final class Main {
    private static final int BATCH_SIZE = 32;
    private static final int ASYNC_WINDOW = 64;
    private static final long MAX_LIFETIME_MS = 480_000;
    /** What the clients allow by default is less than a JVM on a busy machine may take to load classes. */
    private static final int API_TIMEOUT_MS = 20_000;
    /**
     * How unique keys of the C++ client begin here, which writes the address backwards. {@code viewMessage} takes a key for
     * an offset id first, and would ask 1.0.0.127, which a network may never answer.
     */
    private static final String OF_CPP = "0100007F";
    private static final PrintStream OUT = new PrintStream(System.out, false);

    private Main() {
    }

    public static void main(String[] args) {
        Timer watchdog = new Timer("watchdog", true);
        watchdog.schedule(new TimerTask() {
            @Override
            public void run() {
                emit(new Line("event", "timeout"));
                Runtime.getRuntime().halt(3);
            }
        }, MAX_LIFETIME_MS);
        try {
            run(args[0], args[1], Arrays.copyOfRange(args, 2, args.length));
        } catch (Exception error) {
            // The client's threads would keep the process alive.
            emit(new Line("event", "error").add("error", "" + error));
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(String command, String namesrv, String[] rest) throws Exception {
        switch (command) {
            case "produce":
                emit(new Line("event", "done").add("failed", produce(namesrv, rest)));
                break;
            case "consume":
                consume(namesrv, rest);
                break;
            case "inspect":
                inspect(namesrv, rest[0]);
                break;
            default:
                throw new IllegalArgumentException(command);
        }
    }

    // ------------------------------------------------------------------ content

    static byte[] body(int i) {
        int length = i % 10 == 9 ? 4096 + i % 2048 : 16 + i % 241;
        byte[] bytes = new byte[length];
        for (int j = 0; j < length; j++) {
            bytes[j] = (byte) (1 + (i * 131L + j * 17L + j / 251) % 255);
        }
        return bytes;
    }

    static Message message(String topic, int i) {
        Message message = new Message(topic, "tag" + i % 4, "key-" + i + " group-" + i / 50, body(i));
        message.putUserProperty("index", Integer.toString(i));
        message.putUserProperty("note", "note \u5929\u821f " + i);
        return message;
    }

    // ------------------------------------------------------------------ produce

    /** Sends, and returns how many sends failed. */
    private static int produce(String namesrv, String[] args) throws Exception {
        String topic = args[0];
        int i = Integer.parseInt(args[2]);
        DefaultMQProducer producer = producer(namesrv, args[1]);
        AtomicInteger failed = new AtomicInteger();
        for (String part : Arrays.copyOfRange(args, 3, args.length)) {
            String mode = part.substring(0, part.indexOf(':'));
            int count = Integer.parseInt(part.substring(part.indexOf(':') + 1));
            int end = i + count;
            switch (mode) {
                case "sync":
                    for (; i < end; i++) {
                        sent(mode, i, producer.send(message(topic, i)));
                    }
                    break;
                case "async":
                    async(producer, topic, i, end, failed);
                    i = end;
                    break;
                case "oneway":
                    for (; i < end; i++) {
                        producer.sendOneway(message(topic, i));
                        emit(new Line("event", "sent").add("mode", mode).add("i", i));
                    }
                    break;
                case "batch":
                    for (; i < end; i += BATCH_SIZE) {
                        batch(producer, topic, i, Math.min(i + BATCH_SIZE, end));
                    }
                    i = end;
                    break;
                default:
                    throw new IllegalArgumentException(mode);
            }
        }
        // One-way frames are only handed to the connection: a reply on it proves that they left.
        producer.fetchPublishMessageQueues(topic);
        Thread.sleep(300);
        producer.shutdown();
        return failed.get();
    }

    private static void async(DefaultMQProducer producer, String topic, int first, int end, AtomicInteger failed)
        throws Exception {
        Semaphore window = new Semaphore(ASYNC_WINDOW);
        CountDownLatch latch = new CountDownLatch(end - first);
        for (int i = first; i < end; i++) {
            int index = i;
            window.acquire();
            producer.send(message(topic, i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent("async", index, result);
                    window.release();
                    latch.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    emit(new Line("event", "failed").add("mode", "async").add("i", index).add("error", "" + error));
                    failed.incrementAndGet();
                    window.release();
                    latch.countDown();
                }
            });
        }
        if (!latch.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("asynchronous sends not answered: " + latch.getCount());
        }
    }

    private static void batch(DefaultMQProducer producer, String topic, int first, int end) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = first; i < end; i++) {
            messages.add(message(topic, i));
        }
        SendResult result = producer.send(messages);
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int k = 0; k < messages.size(); k++) {
            emit(new Line("event", "sent").add("mode", "batch").add("i", first + k)
                .add("msgId", k < ids.length ? ids[k] : null)
                .add("offsetMsgId", k < offsetIds.length ? offsetIds[k] : null)
                .add("queueId", result.getMessageQueue().getQueueId())
                .add("queueOffset", result.getQueueOffset() + k)
                .add("status", result.getSendStatus().name()));
        }
    }

    private static void sent(String mode, int i, SendResult result) {
        emit(new Line("event", "sent").add("mode", mode).add("i", i)
            .add("msgId", result.getMsgId())
            .add("offsetMsgId", result.getOffsetMsgId())
            .add("queueId", result.getMessageQueue().getQueueId())
            .add("queueOffset", result.getQueueOffset())
            .add("status", result.getSendStatus().name()));
    }

    private static DefaultMQProducer producer(String namesrv, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.setMqClientApiTimeout(API_TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        return producer;
    }

    // ------------------------------------------------------------------ consume

    private static void consume(String namesrv, String[] specs) throws Exception {
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int n = 0; n < specs.length; n++) {
            String[] spec = specs[n].split(":");
            consumers.add(consumer(namesrv, spec[0], spec[0] + "-" + n, spec[1], spec[2].split(",")));
        }
        emit(new Line("event", "started"));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (!words[0].equals("produce")) {
                throw new IllegalArgumentException(line);
            }
            int failed = produce(namesrv, Arrays.copyOfRange(words, 1, words.length));
            emit(new Line("event", "produced").add("failed", failed));
        }
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        emit(new Line("event", "done"));
    }

    private static DefaultMQPushConsumer consumer(
        String namesrv, String role, String name, String group, String[] topics) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setPollNameServerInterval(3_000);
        consumer.setMqClientApiTimeout(API_TIMEOUT_MS);
        if (role.equals("broadcasting")) {
            setBroadcasting(consumer);
        }
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean again = false;
            for (MessageExt message : messages) {
                int i = index(message);
                boolean fail = role.equals("retry") && i >= 0 && i % 100 == 7 && message.getReconsumeTimes() == 0;
                emit(received(name, message).add("failed", fail));
                again |= fail;
            }
            if (again) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** The enumeration moved to another package between the two versions. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setBroadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                Class type = method.getParameterTypes()[0];
                method.invoke(consumer, Enum.valueOf(type, "BROADCASTING"));
            }
        }
    }

    // ------------------------------------------------------------------ inspect

    /**
     * Commands, one a line: {@code pull TOPIC}, {@code view TOPIC OFFSET_ID}, {@code unique TOPIC ID},
     * {@code query TOPIC KEY MAX}, {@code fresh TOPIC I}. Each ends with a line of event {@code end}.
     */
    private static void inspect(String namesrv, String group) throws Exception {
        DefaultMQProducer producer = producer(namesrv, group + "_producer");
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer(group);
        puller.setNamesrvAddr(namesrv);
        puller.setMqClientApiTimeout(API_TIMEOUT_MS);
        puller.start();
        emit(new Line("event", "started"));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            try {
                switch (words[0]) {
                    case "pull":
                        pull(puller, words[1]);
                        break;
                    case "view":
                        emit(received("view", producer.viewMessage(words[1], words[2])));
                        break;
                    case "unique":
                        emit(received("unique", unique(producer, words[1], words[2], 2_000)));
                        break;
                    case "query":
                        query(producer, words[1], words[2], Integer.parseInt(words[3]));
                        break;
                    case "fresh":
                        fresh(producer, words[1], Integer.parseInt(words[2]));
                        break;
                    default:
                        throw new IllegalArgumentException(line);
                }
                emit(new Line("event", "end"));
            } catch (Exception error) {
                emit(new Line("event", "end").add("error", "" + error));
            }
        }
        puller.shutdown();
        producer.shutdown();
        emit(new Line("event", "done"));
    }

    private static void pull(DefaultMQPullConsumer puller, String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(puller.fetchSubscribeMessageQueues(topic));
        Collections.sort(queues, Comparator.comparing(MessageQueue::getQueueId));
        for (MessageQueue queue : queues) {
            long min = puller.minOffset(queue);
            long max = puller.maxOffset(queue);
            emit(new Line("event", "queue").add("topic", topic).add("queueId", queue.getQueueId())
                .add("min", min).add("max", max));
            long offset = min;
            while (offset < max) {
                PullResult result = puller.pull(queue, "*", offset, 32);
                if (result.getPullStatus() != PullStatus.FOUND) {
                    throw new IllegalStateException(queue + " at " + offset + ": " + result);
                }
                for (MessageExt message : result.getMsgFoundList()) {
                    emit(received("pull", message));
                }
                if (result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(queue + " at " + offset + ": no progress, " + result);
                }
                offset = result.getNextBeginOffset();
            }
            PullResult end = puller.pull(queue, "*", max, 32);
            emit(new Line("event", "queueEnd").add("queueId", queue.getQueueId())
                .add("status", end.getPullStatus().name()));
        }
    }

    private static MessageExt unique(DefaultMQProducer producer, String topic, String id, long limitMs)
        throws Exception {
        long deadline = System.nanoTime() + limitMs * 1_000_000;
        while (true) {
            try {
                MessageExt found = id.startsWith(OF_CPP)
                    ? producer.getDefaultMQProducerImpl().queryMessageByUniqKey(topic, id)
                    : producer.viewMessage(topic, id);
                if (found != null) {
                    return found;
                }
            } catch (Exception notYet) {
                if (System.nanoTime() > deadline) {
                    throw notYet;
                }
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("unique key not found: " + id);
            }
            Thread.sleep(50);
        }
    }

    private static void query(DefaultMQProducer producer, String topic, String key, int max) throws Exception {
        QueryResult result = producer.queryMessage(topic, key, max, 0, System.currentTimeMillis() + 60_000);
        for (MessageExt message : result.getMessageList()) {
            emit(received("query", message));
        }
    }

    private static void fresh(DefaultMQProducer producer, String topic, int i) throws Exception {
        SendResult result = producer.send(message(topic, i));
        sent("sync", i, result);
        long begin = System.nanoTime();
        MessageExt found = unique(producer, topic, result.getMsgId(), 2_000);
        emit(received("fresh", found).add("elapsedMs", (System.nanoTime() - begin) / 1_000_000));
    }

    // ------------------------------------------------------------------ lines

    private static int index(MessageExt message) {
        String index = message.getUserProperty("index");
        return index == null ? -1 : Integer.parseInt(index);
    }

    private static Line received(String name, MessageExt message) {
        String offsetId = message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
        return new Line("event", "received").add("consumer", name)
            .add("topic", message.getTopic())
            .add("i", index(message))
            .add("msgId", message.getMsgId())
            .add("offsetMsgId", offsetId)
            .add("uniqueKey", message.getProperty("UNIQ_KEY"))
            .add("queueId", message.getQueueId())
            .add("queueOffset", message.getQueueOffset())
            .add("bodyLength", message.getBody().length)
            .add("bodySha256", sha256(message.getBody()))
            .add("tags", message.getTags())
            .add("keys", message.getKeys())
            .add("property", message.getUserProperty("note"))
            .add("sysFlag", message.getSysFlag())
            .add("reconsumeTimes", message.getReconsumeTimes())
            .add("bornTimestamp", message.getBornTimestamp())
            .add("storeTimestamp", message.getStoreTimestamp());
    }

    private static String sha256(byte[] bytes) {
        try {
            StringBuilder hex = new StringBuilder();
            for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes)) {
                hex.append(String.format("%02x", b));
            }
            return hex.toString();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void emit(Line line) {
        byte[] bytes = (line.text + "}\n").getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(bytes, 0, bytes.length);
            OUT.flush();
        }
    }

    /** One JSON object under construction. */
    private static final class Line {
        private final StringBuilder text = new StringBuilder("{");

        Line(String name, Object value) {
            add(name, value);
        }

        Line add(String name, Object value) {
            if (text.length() > 1) {
                text.append(", ");
            }
            quote(name);
            text.append(": ");
            if (value instanceof String) {
                quote((String) value);
            } else {
                text.append(value);
            }
            return this;
        }

        private void quote(String value) {
            text.append('"');
            for (char c : value.toCharArray()) {
                if (c == '"' || c == '\\' || c < 0x20) {
                    text.append(String.format("\\u%04x", (int) c));
                } else {
                    text.append(c);
                }
            }
            text.append('"');
        }
    }
}
