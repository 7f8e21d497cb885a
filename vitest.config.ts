import { defineConfig } from 'vitest/config'

/**
 * What boots images, installs packages, drives a browser, kills processes, crowds, sends what
 * nobody should, or needs a service of its own for long: `npm run test:slow`.
 */
const SLOW = [
  'deploy/action',
  'deploy/images',
  'deploy/live-metrics',
  'deploy/staging',
  'integration/attestation-browser',
  'integration/audit',
  'integration/chaos',
  'integration/client-examples',
  'integration/confidentiality',
  'integration/diffusion-nodes',
  'integration/dumped-content',
  'integration/embedded-crash',
  'integration/enclave-faults',
  'integration/enclave-memory',
  'integration/faults',
  'integration/fuzz-endpoints',
  'integration/gateway-processes',
  'integration/hostile-drawers',
  'integration/hostile-gateway',
  'integration/hostile-node',
  'integration/hostile-provider',
  'integration/idempotency-crash',
  'integration/image',
  'integration/image-boot',
  'integration/memory',
  'integration/node-agent',
  'integration/node-presence',
  'integration/pages',
  'integration/pages-console',
  'integration/pages-explorer',
  'integration/pages-docs',
  'integration/postgres-crash',
  'integration/redaction',
  'integration/replicas',
  'integration/service-chaos',
  'integration/several-enclaves',
  'integration/several-gateways',
  'integration/start',
  'integration/stored-content',
  'integration/tampering',
  'integration/traces',
  'integration/verifier-conformance',
  'integration/verifier-mutants',
  'integration/pages-verify',
  'integration/pages-verify-conformance',
  'packages/build-packages',
  'packages/install',
  'runbooks/backup-and-restore',
  'runbooks/failover-with-lost-commits',
  'runbooks/erase-content',
  'runbooks/retire-a-gateway',
  'runbooks/retire-an-enclave',
  'runbooks/rotate-api-keys',
  'runbooks/rotate-release-keys',
  'runbooks/rotate-the-relayer',
  'runbooks/sizing',
  'runbooks/upgrade-and-downgrade',
  'src/bus/faulty-gateways',
  'src/chain/broadcaster/failing-chain',
  'src/cli/audit/garbled-answers',
  'src/local/local-chain',
  'src/nodes/hostile-drawers',
  'src/nodes/hostile-nodes',
].map((name) => `test/${name}.test.ts`)

/** Long enough for a machine that is busy with something else: who waits for a condition goes on at once. */
const POLL = { poll: { timeout: 30_000, interval: 20 } }

/** Each file loads both cores of a small machine, so they run one after the other. */
const ALONE = { fileParallelism: false, expect: POLL, testTimeout: 120_000, hookTimeout: 120_000 }

/**
 * Three projects. `unit`: one room at a time, in parallel, seconds. `integration`: real processes,
 * chains and databases. `slow`: the same under what they rarely meet.
 */
export default defineConfig({
  test: {
    globalSetup: 'test/support/run-keeper.ts',
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/integration/**', ...SLOW],
          // Files share their worker and the modules it has loaded: a test leaves no global changed.
          isolate: false,
          expect: POLL,
          maxWorkers: '100%',
          testTimeout: 60_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          exclude: SLOW,
          ...ALONE,
        },
      },
      { test: { name: 'slow', include: SLOW, ...ALONE } },
    ],
  },
})
