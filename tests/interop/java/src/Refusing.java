import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A consumer that refuses every message: {@code Refusing NAMESRV GROUP TOPIC ORDERLY MAX}, until the end of its input.
 *
 * <p>{@code ORDERLY} is true or false; {@code MAX} is how often a message is tried again, -1 for the default.
 */
public final class Refusing {
    private Refusing() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setPollNameServerInterval(3_000);
        consumer.setInstanceName("refusing-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(Integer.parseInt(args[4]));
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(args[2], "*");
        if (Boolean.parseBoolean(args[3])) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                refused(messages);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                refused(messages);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        emit("{\"event\": \"started\"}");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        emit("{\"event\": \"done\"}");
        System.exit(0);
    }

    private static void refused(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            emit("{\"event\": \"refused\", \"times\": " + message.getReconsumeTimes() + ", \"topic\": \""
                + message.getTopic() + "\", \"id\": \"" + message.getMsgId() + "\"}");
        }
    }

    private static synchronized void emit(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
