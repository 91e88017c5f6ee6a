import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.TreeSet;

import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.message.MessageType;

/**
 * Encodes and reads trace records with Apache's client: a question a line, its parts separated by tabs.
 *
 * <p>A part {@code \N} is null. The answer to a type is the records in Base64, a space, and the keys joined by commas;
 * to {@code read}, what Apache's reader makes of the records given in Base64.
 */
public final class Traces {
    private Traces() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        String line;
        while ((line = in.readLine()) != null) {
            String[] parts = line.split("\t", -1);
            out.println("read".equals(parts[0]) ? read(parts[1]) : encode(parts));
        }
    }

    private static String encode(String[] p) {
        TraceContext context = new TraceContext();
        TraceBean bean = new TraceBean();
        context.setTraceType(TraceType.valueOf(p[0]));
        context.setTimeStamp(Long.parseLong(p[1]));
        context.setRegionId(text(p[2]));
        context.setGroupName(text(p[3]));
        context.setRequestId(text(p[4]));
        context.setCostTime(Integer.parseInt(p[5]));
        context.setSuccess(Boolean.parseBoolean(p[6]));
        context.setContextCode(Integer.parseInt(p[7]));
        context.setAccessChannel(AccessChannel.valueOf(p[8]));
        bean.setTopic(text(p[9]));
        bean.setMsgId(text(p[10]));
        bean.setTags(text(p[11]));
        bean.setKeys(text(p[12]));
        bean.setStoreHost(text(p[13]));
        bean.setBodyLength(Integer.parseInt(p[14]));
        bean.setMsgType(MessageType.values()[Integer.parseInt(p[15])]);
        bean.setOffsetMsgId(text(p[16]));
        bean.setRetryTimes(Integer.parseInt(p[17]));
        bean.setTransactionId(text(p[18]));
        bean.setTransactionState(LocalTransactionState.valueOf(p[19]));
        bean.setFromTransactionCheck(Boolean.parseBoolean(p[20]));
        List<TraceBean> beans = new ArrayList<>();
        beans.add(bean);
        context.setTraceBeans(beans);
        TraceTransferBean made = TraceDataEncoder.encoderFromContextBean(context);
        String data = Base64.getEncoder().encodeToString(made.getTransData().getBytes(StandardCharsets.UTF_8));
        return data + " " + String.join(",", new TreeSet<>(made.getTransKey()));
    }

    private static String read(String base64) {
        String data = new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
        StringBuilder found = new StringBuilder();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(data)) {
            for (TraceBean bean : context.getTraceBeans()) {
                found.append(context.getTraceType()).append('/').append(bean.getMsgId()).append('/')
                    .append(context.isSuccess()).append('/').append(bean.getKeys()).append(' ');
            }
        }
        return found.toString().trim();
    }

    private static String text(String part) {
        return "\\N".equals(part) ? null : part;
    }
}
