import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A consumer with an SQL92 expression as a command: {@code Selecting NAMESRV MODE GROUP TOPIC EXPRESSION}.
 *
 * <p>Modes: push and lite read until the end of input, retry does and refuses each message once, pull reads all there is.
 */
public final class Selecting {
    private static volatile boolean over;

    private Selecting() {
    }

    public static void main(String[] args) throws Exception {
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException ended) {
                // The same as the end of input.
            }
            over = true;
        });
        input.setDaemon(true);
        input.start();
        MessageSelector selector = MessageSelector.bySql(args[4]);
        try {
            switch (args[1]) {
                case "lite":
                    lite(args[0], args[2], args[3], selector);
                    break;
                case "pull":
                    pull(args[0], args[2], args[3], selector);
                    break;
                default:
                    push(args[0], args[1].equals("retry"), args[2], args[3], selector);
            }
        } catch (MQClientException refused) {
            emit("refused", ", \"code\": " + refused.getResponseCode() + ", \"error\": \""
                + ("" + refused.getErrorMessage()).replaceAll("[\"\\\\\\x00-\\x1f]", " ") + "\"");
        }
        emit("done", "");
        System.exit(0);
    }

    private static void push(String namesrv, boolean refuse, String group, String topic, MessageSelector selector)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("selecting-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(3_000);
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt message : messages) {
                received(message);
                if (refuse && message.getReconsumeTimes() == 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        emit("started", "");
        while (!over) {
            Thread.sleep(20);
        }
        consumer.shutdown();
    }

    private static void lite(String namesrv, String group, String topic, MessageSelector selector) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("selecting-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, selector);
        consumer.start();
        emit("started", "");
        while (!over) {
            consumer.poll(100).forEach(Selecting::received);
        }
        consumer.shutdown();
    }

    private static void pull(String namesrv, String group, String topic, MessageSelector selector) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("selecting-" + System.nanoTime());
        consumer.start();
        emit("started", "");
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = consumer.minOffset(queue);
            while (offset < consumer.maxOffset(queue)) {
                PullResult result = pull(consumer, queue, selector, offset);
                List<MessageExt> found = result.getPullStatus() == PullStatus.FOUND
                    ? result.getMsgFoundList() : Collections.emptyList();
                found.forEach(Selecting::received);
                offset = result.getNextBeginOffset();
            }
        }
        consumer.shutdown();
    }

    // The client learns from the answer to a heartbeat that the broker knows SQL, and does not wait for it.
    private static PullResult pull(
        DefaultMQPullConsumer consumer, MessageQueue queue, MessageSelector selector, long offset) throws Exception {
        for (int attempt = 0;; attempt++) {
            try {
                return consumer.pull(queue, selector, offset, 32);
            } catch (MQClientException early) {
                if (attempt > 200 || !("" + early.getErrorMessage()).contains("does not upgrade")) {
                    throw early;
                }
                Thread.sleep(200);
            }
        }
    }

    private static void received(MessageExt message) {
        emit("received", ", \"i\": " + message.getUserProperty("index") + ", \"reconsumeTimes\": "
            + message.getReconsumeTimes() + ", \"topic\": \"" + message.getTopic() + "\"");
    }

    private static void emit(String event, String more) {
        byte[] bytes = ("{\"event\": \"" + event + "\"" + more + "}\n").getBytes(StandardCharsets.UTF_8);
        synchronized (Selecting.class) {
            System.out.write(bytes, 0, bytes.length);
            System.out.flush();
        }
    }
}
