import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;
import org.apache.rocketmq.auth.authentication.model.Subject;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.authorization.chain.AclAuthorizationHandler;
import org.apache.rocketmq.auth.authorization.context.DefaultAuthorizationContext;
import org.apache.rocketmq.auth.authorization.enums.Decision;
import org.apache.rocketmq.auth.authorization.enums.PolicyType;
import org.apache.rocketmq.auth.authorization.model.Acl;
import org.apache.rocketmq.auth.authorization.model.Policy;
import org.apache.rocketmq.auth.authorization.model.PolicyEntry;
import org.apache.rocketmq.auth.authorization.model.Resource;
import org.apache.rocketmq.auth.authorization.provider.AuthorizationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.common.action.Action;

/**
 * Answers whether RocketMQ 5.3 allows an action with the entries of a policy.
 *
 * Lines of standard input: a resource, an action, and the entries in their order, each as "Topic:orders=Allow" or
 * "Topic:ord*=Deny". Each line is answered with the reason of the refusal, or "allowed".
 */
public class PolicyOracle {
    /** Has the policy of the present line. */
    public static class Given implements AuthorizationMetadataProvider {
        static Acl acl;

        @Override
        public void initialize(AuthConfig authConfig, Supplier<?> metadataService) {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public CompletableFuture<Void> createAcl(Acl acl) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> deleteAcl(Subject subject) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> updateAcl(Acl acl) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Acl> getAcl(Subject subject) {
            return CompletableFuture.completedFuture(acl);
        }

        @Override
        public CompletableFuture<List<Acl>> listAcl(String subjectFilter, String resourceFilter) {
            throw new UnsupportedOperationException();
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII), 1 << 16);
        PrintStream out = System.out;
        System.setOut(System.err);
        AuthConfig config = new AuthConfig();
        config.setConfigName("oracle");
        config.setAuthorizationMetadataProvider(Given.class.getName());
        AclAuthorizationHandler handler = new AclAuthorizationHandler(config);
        Subject subject = User.of("alice");
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            List<PolicyEntry> entries = new ArrayList<>();
            for (int i = 2; i < words.length; i++) {
                String[] parts = words[i].split("=");
                Decision decision = parts[1].equals("Deny") ? Decision.DENY : Decision.ALLOW;
                entries.add(PolicyEntry.of(Resource.of(parts[0]), Collections.singletonList(Action.ALL), null, decision));
            }
            Given.acl = Acl.of(subject, Policy.of(PolicyType.CUSTOM, entries));
            out.println(decide(handler, DefaultAuthorizationContext.of(
                subject, Resource.of(words[0]), Action.getByName(words[1]), "10.0.0.1")));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String decide(AclAuthorizationHandler handler, DefaultAuthorizationContext context) {
        try {
            handler.handle(context, null).join();
            return "allowed";
        } catch (CompletionException refused) {
            String text = String.valueOf(refused.getCause().getMessage());
            return text.substring(text.lastIndexOf(", ") + 2);
        }
    }
}
