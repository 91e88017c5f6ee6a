import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer as a command: {@code Steady NAMESRV GROUP TOPIC FIRST}, one message after the other until the end of its
 * input, with the retries of the client's defaults.
 */
public final class Steady {
    /** Not an interruption, which a client that waits for a lock or a connection takes for its own and forgets. */
    private static volatile boolean ending;

    private Steady() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.setPollNameServerInterval(1_000);
        // Retries count towards this time. Three seconds, the default, are too short on a machine that others use.
        producer.setSendMsgTimeout(15_000);
        producer.start();
        Thread sending = new Thread(() -> send(producer, args[2], Integer.parseInt(args[3])));
        sending.start();
        emit("{\"event\": \"started\"}");
        while (System.in.read() >= 0) {
            continue;
        }
        ending = true;
        sending.join();
        producer.shutdown();
        emit("{\"event\": \"done\"}");
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, int first) {
        for (int i = first; !ending; i++) {
            try {
                Message message = new Message(topic, new byte[] {1});
                message.putUserProperty("index", Integer.toString(i));
                SendResult result = producer.send(message);
                emit("{\"event\": \"sent\", \"i\": " + i + ", \"status\": \"" + result.getSendStatus()
                    + "\", \"broker\": \"" + result.getMessageQueue().getBrokerName()
                    + "\", \"queueId\": " + result.getMessageQueue().getQueueId() + "}");
                Thread.sleep(15);
            } catch (Exception error) {
                String text = ("" + error).replaceAll("[^ -!#-\\[\\]-~]", " ");
                emit("{\"event\": \"failed\", \"i\": " + i + ", \"error\": \"" + text + "\"}");
            }
        }
    }

    private static synchronized void emit(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
