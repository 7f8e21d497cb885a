import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { keepAttestation } from './attestation-keeper.ts'
import { keepBootStatement } from './boot-statement.ts'
import type { CompletionCore } from './calls/serve-completion.ts'
import { bootConfigurationOf, type EnclaveConfig } from './config.ts'
import { openKeyRing } from './encryption/key-ring.ts'
import { createProofWaiters } from './encryption/proof-waiters.ts'
import { listenOnSocket } from './listen-socket.ts'
import { createAttempts, GENERATION_REQUESTS_MAX } from './log/attempts.ts'
import { Space } from './log/memory-budget.ts'
import { NotaryLog } from './log/notary-log.ts'
import type { EventLog } from './logger.ts'
import { makeAccount } from './notary-key.ts'
import type { Nsm } from './nsm/nsm.ts'
import { createTransport } from './providers/transport.ts'
import { createEnclaveServer, type Gate } from './server.ts'

export type Enclave = {
  /** Address of the signing account, 0x, lower case. */
  readonly notary: string
  /** 0x and 65 bytes of hex: the uncompressed point. */
  readonly publicKey: string
  /**
   * Refuses new completions (`not_ready`), and lets running completions finish. The gateway can
   * still pull and acknowledge. Closes everything when all completions are acknowledged, or after
   * `graceMs`. Returns the number of sealed completions that were not acknowledged: they are lost.
   */
  readonly stop: (graceMs: number) => Promise<{ readonly unacknowledged: number }>
}

/**
 * Starts an enclave: an account from the module's random numbers, an attestation document over the
 * boot configuration, and the server on the Unix socket. Throws NsmError and SocketError.
 */
export async function startEnclave(
  config: Omit<EnclaveConfig, 'isProduction' | 'nsm' | 'nsmSocket' | 'shutdownGraceMs'>,
  {
    nsm,
    now,
    monotonic,
    log,
    waits = {},
  }: {
    readonly nsm: Nsm
    /** Unix milliseconds. */
    readonly now: () => number
    /** Milliseconds. */
    readonly monotonic: () => number
    readonly log: EventLog
    /** For tests. Replaces KEEP_ALIVE_MS and PROOF_TIMEOUT_MS for encrypted calls. */
    readonly waits?: { readonly keepAliveMs?: number; readonly proofMs?: number }
  },
): Promise<Enclave> {
  const { limits, chainId, contract } = config
  const account = await makeAccount(nsm.random)
  const attempts = createAttempts({
    key: await nsm.random(ATTEMPTS_KEY_BYTES),
    monotonic,
    requestsMax: Math.min(
      GENERATION_REQUESTS_MAX,
      Math.floor(limits.pendingBytesMax / ATTEMPT_SHARE),
    ),
  })
  const boot = bootConfigurationOf(config)
  const configuration = digestBootConfiguration(boot)
  const attestation = await keepAttestation({
    nsm,
    publicKey: account.publicKey,
    userData: configuration,
    renewMs: config.attestationRenewMs,
    now,
    monotonic,
    log,
  })
  const domain = { chainId, contract }
  const space = new Space(limits.pendingBytesMax)
  const core: CompletionCore = {
    providers: config.providers,
    limits,
    transport: createTransport({ cas: config.cas.pem, connectTimeoutMs: limits.connectTimeoutMs }),
    account,
    log: new NotaryLog({ account, domain, space }),
    attempts,
    space,
    attestation,
    now,
    makeId: () => `chatcmpl-${randomUUID().replaceAll('-', '')}`,
  }
  const ring = await openKeyRing({ random: nsm.random, account, domain, now, monotonic, log })
  const { notary } = account
  const bootStatement = keepBootStatement({
    notary,
    domain,
    configuration,
    log: core.log,
    attestation,
  })
  const gate: Gate = { running: 0, isClosed: false }
  const publicKey = `0x${encodeHex(account.publicKey)}`
  const server = createEnclaveServer({
    core,
    encryption: {
      ring,
      waiters: createProofWaiters(waits.proofMs),
      keepAliveMs: waits.keepAliveMs,
    },
    boot,
    configuration,
    bootStatement,
    gate,
    publicKey,
    log,
  })
  const closeAll = async () => {
    attestation.stop()
    ring.stop()
    const closed = new Promise((resolve) => server.close(resolve))
    core.log.wake()
    await Promise.race([closed, sleep(CLOSE_MS)])
    server.closeAllConnections()
    core.transport.close()
    nsm.close()
  }
  try {
    await listenOnSocket(server, config.socketPath, config.socketMode)
  } catch (error) {
    await closeAll()
    throw error
  }
  return {
    notary,
    publicKey,
    stop: async (graceMs) => {
      gate.isClosed = true
      await waitUntil(() => gate.running === 0 && core.log.acknowledged === core.log.size, graceMs)
      await closeAll()
      return { unacknowledged: core.log.size - core.log.acknowledged }
    },
  }
}

const ATTEMPTS_KEY_BYTES = 16

/**
 * A generation remembers one request per 128 bytes of PENDING_BYTES_MAX. A request takes up to 27
 * bytes, so two generations take less than half of PENDING_BYTES_MAX.
 */
const ATTEMPT_SHARE = 128

/** Time for the gateway to read the last answers, milliseconds. */
const CLOSE_MS = 500

const POLL_MS = 20

async function waitUntil(isDone: () => boolean, timeoutMs: number): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!isDone() && performance.now() < deadline) await sleep(POLL_MS)
}
