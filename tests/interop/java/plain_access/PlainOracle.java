import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.acl.plain.PlainAccessValidator;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Answers how RocketMQ 4.9 reads rule files, and which requests it takes with them.
 *
 * Lines of standard input; texts are a point and base64:
 *   F case path content     write a file below the case's home
 *   D case path             delete it
 *   S case                  make the validator of the case; answered "started", or "refused" and the exception's class
 *   W ms                    wait, so that watchers look at changed files
 *   Q case ip key secret code name value ...   answered "yes", or "no" and the exception's text; a key of "." is none
 */
public class PlainOracle {
    private static final Map<String, PlainAccessValidator> VALIDATORS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII), 1 << 16);
        PrintStream out = System.out;
        System.setOut(System.err);
        Path homes = Paths.get(args[0]);
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "F":
                    Path path = homes.resolve(words[1]).resolve(text(words[2]));
                    Files.createDirectories(path.getParent());
                    Files.write(path, Base64.getDecoder().decode(words[3].substring(1)));
                    break;
                case "D":
                    Files.delete(homes.resolve(words[1]).resolve(text(words[2])));
                    break;
                case "S":
                    out.println(start(homes.resolve(words[1]), words[1]));
                    break;
                case "W":
                    Thread.sleep(Long.parseLong(words[1]));
                    break;
                case "Q":
                    out.println(ask(words));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static String start(Path home, String name) throws Exception {
        Files.createDirectories(home.resolve("conf"));
        System.setProperty("rocketmq.home.dir", home.toString());
        try {
            VALIDATORS.put(name, new PlainAccessValidator());
            return "started";
        } catch (Throwable refused) {
            return "refused " + refused.getClass().getSimpleName();
        }
    }

    private static String ask(String[] words) {
        PlainAccessValidator validator = VALIDATORS.get(words[1]);
        RemotingCommand request = RemotingCommand.createRequestCommand(Integer.parseInt(words[5]), null);
        TreeMap<String, String> fields = new TreeMap<>();
        for (int i = 6; i + 1 < words.length; i += 2) {
            fields.put(text(words[i]), text(words[i + 1]));
        }
        String key = text(words[3]);
        if (!key.isEmpty()) {
            fields.put("AccessKey", key);
            byte[] content = AclUtils.combineRequestContent(request, fields);
            fields.put("Signature", AclUtils.calSignature(content, text(words[4])));
        }
        request.setExtFields(new HashMap<>(fields));
        try {
            validator.validate(validator.parse(request, words[2] + ":4000"));
            return "yes";
        } catch (Throwable refused) {
            return "no " + refused.getMessage();
        }
    }
}
