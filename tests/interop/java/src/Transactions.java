import java.nio.charset.StandardCharsets;
import java.util.Timer;
import java.util.TimerTask;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The Java transaction producer as a command; it sends, then answers checks until the end of its input.
 *
 * <pre>
 * NAMESRV TOPIC GROUP FIRST COUNT
 * </pre>
 *
 * <p>What is decided follows from the index: 0 commit, 1 roll-back at once; 2 commit, 3 roll-back when asked; modulo 4.
 */
public final class Transactions {
    private static final long MAX_LIFETIME_MS = 480_000;

    private Transactions() {
    }

    public static void main(String[] args) {
        Timer watchdog = new Timer("watchdog", true);
        watchdog.schedule(new TimerTask() {
            @Override
            public void run() {
                Runtime.getRuntime().halt(3);
            }
        }, MAX_LIFETIME_MS);
        try {
            run(args[0], args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        } catch (Exception error) {
            emit("error", ", \"error\": \"" + ("" + error).replaceAll("[\"\\\\\\x00-\\x1f]", " ") + "\"");
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(String namesrv, String topic, String group, int first, int count) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object index) {
                switch ((Integer) index % 4) {
                    case 0:
                        return LocalTransactionState.COMMIT_MESSAGE;
                    case 1:
                        return LocalTransactionState.ROLLBACK_MESSAGE;
                    default:
                        return LocalTransactionState.UNKNOW;
                }
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                int index = Integer.parseInt(message.getUserProperty("index"));
                emit("checked", ", \"i\": " + index + ", \"topic\": \"" + message.getTopic() + "\", \"transactionId\": \""
                    + message.getTransactionId() + "\", \"bodyLength\": " + message.getBody().length);
                return index % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        for (int i = first; i < first + count; i++) {
            TransactionSendResult result = producer.sendMessageInTransaction(Main.message(topic, i), i);
            emit("sent", ", \"i\": " + i + ", \"status\": \"" + result.getSendStatus() + "\", \"msgId\": \""
                + result.getMsgId() + "\", \"transactionId\": \"" + result.getTransactionId() + "\"");
        }
        emit("started", "");
        while (System.in.read() >= 0) {
            continue;
        }
        producer.shutdown();
        emit("done", "");
    }

    private static void emit(String event, String more) {
        byte[] bytes = ("{\"event\": \"" + event + "\"" + more + "}\n").getBytes(StandardCharsets.UTF_8);
        synchronized (Transactions.class) {
            System.out.write(bytes, 0, bytes.length);
            System.out.flush();
        }
    }
}
