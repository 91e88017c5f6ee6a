import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Says what RocketMQ's filter library makes of expressions, property sets and bloom filters.
 *
 * Lines of standard input, texts in base64:
 *   P name value name value ...   a property set; they are numbered from 0
 *   E expression set set ...      answered R (refused), or one letter per set: T, F, N (null) or X (error)
 *   B percent expected text ...   answered with hashes, bits, positions of each text, and the map of all in hex
 */
public class Oracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII), 1 << 16);
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        List<Map<String, String>> sets = new ArrayList<>();
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "P":
                    Map<String, String> set = new HashMap<>();
                    for (int i = 1; i + 1 < words.length; i += 2) {
                        set.put(text(words[i]), text(words[i + 1]));
                    }
                    sets.add(set);
                    break;
                case "E":
                    out.println(evaluate(words, sets));
                    break;
                case "B":
                    out.println(bloom(words));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static String evaluate(String[] words, List<Map<String, String>> sets) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(words[1]));
        } catch (Throwable refused) {
            return "R";
        }
        StringBuilder answer = new StringBuilder();
        for (int i = 2; i < words.length; i++) {
            answer.append(evaluate(expression, sets.get(Integer.parseInt(words[i]))));
        }
        return answer.toString();
    }

    private static char evaluate(Expression expression, Map<String, String> set) {
        try {
            Object result = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return set.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return new HashMap<>(set);
                }
            });
            return result == null ? 'N' : Boolean.TRUE.equals(result) ? 'T' : Boolean.FALSE.equals(result) ? 'F' : '?';
        } catch (Throwable error) {
            return 'X';
        }
    }

    private static String bloom(String[] words) {
        BloomFilter filter = BloomFilter.createByFn(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
        BitsArray bits = BitsArray.create(filter.getM());
        StringBuilder answer = new StringBuilder(filter.getK() + " " + filter.getM());
        for (int i = 3; i < words.length; i++) {
            for (int position : filter.calcBitPositions(text(words[i]))) {
                answer.append(' ').append(position);
            }
            filter.hashTo(text(words[i]), bits);
        }
        answer.append(' ');
        for (byte one : bits.bytes()) {
            answer.append(String.format("%02x", one));
        }
        return answer.toString();
    }
}
