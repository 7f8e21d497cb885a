import { setTimeout as sleep } from 'node:timers/promises'
import type { Identity } from '../../enclave/protocol/messages.ts'
import { CALLS_MAX } from '../app-routes.ts'
import type { Broadcaster } from '../chain/broadcaster.ts'
import type { GatewayConfig } from '../config.ts'
import { StartFailure } from '../local/supervised-process.ts'
import type { Logger } from '../logger.ts'
import type { Meter } from '../metrics/meter.ts'
import type { Committer } from '../services/committer.ts'
import { createEnclaveClient, type EnclaveClient } from '../services/enclave-client.ts'
import { EnclaveError } from '../services/enclave-error.ts'
import type { EvidenceSources } from '../services/evidence.ts'
import { createAnchorBlocksStore } from '../stores/anchor-blocks.ts'
import { createHeadAttestationsStore } from '../stores/head-attestations.ts'
import { startBlockKeeper } from './block-keeper.ts'
import { startBroadcaster } from './broadcaster.ts'
import type { Chain } from './chain.ts'
import { startCommitter } from './committer.ts'
import { findEnclaveFaults } from './enclave-check.ts'
import { startHeadAttestations } from './head-attestations.ts'
import type { Parts } from './parts.ts'
import { pullUntilEnd } from './pull-until-end.ts'

/** What seals completions, stores them, anchors them and keeps the evidence. */
export type Notary = {
  readonly enclave: EnclaveClient
  readonly broadcaster: Broadcaster
  readonly committer: Committer
  readonly evidence: EvidenceSources
}

/**
 * Starts all that follows the enclave's log, over parts that run; each is given to `onStarted` at once, and they are to be
 * stopped in the opposite order. Rejects with StartFailure when there is no enclave, or not one for this gateway.
 */
export async function startNotary(
  config: GatewayConfig,
  {
    parts: [database, chain, enclavePart],
    countCommit,
    onStarted,
    log,
  }: {
    readonly parts: Parts
    readonly countCommit: Meter['countCommit'] | undefined
    readonly onStarted: (stop: () => Promise<void>) => void
    readonly log: Logger
  },
): Promise<Notary> {
  const { socketPath } = enclavePart
  const enclave = createEnclaveClient({ socketPath, callsMax: CALLS_MAX, now: Date.now })
  onStarted(() => enclave.close())
  await checkEnclave(enclave, { config, chain })
  const { confirmations, fees } = config
  const broadcaster = startBroadcaster({ database, chain, confirmations, log })
  onStarted(() => broadcaster.stop())
  const { pull, expectEnd } = pullUntilEnd(enclave)
  const following = { ...enclave, pull }
  const committer = startCommitter({
    enclave: following,
    database,
    chain,
    fees,
    broadcaster,
    countCommit,
    log,
  })
  onStarted(() => committer.stop())
  // Before the committer stops: an enclave that ends in good order waits until all it sealed is committed.
  onStarted(() => {
    if (enclavePart.local !== null) expectEnd()
    return enclavePart.stop()
  })
  const store = createHeadAttestationsStore(database)
  const attestations = startHeadAttestations(config, { chain, enclave, committer, store, log })
  onStarted(() => attestations.stop())
  const blocks = startBlockKeeper({ blocks: createAnchorBlocksStore(database), chain, log })
  onStarted(() => blocks.stop())
  return { enclave, broadcaster, committer, evidence: blocks.sources }
}

/** How long an enclave that is just (re)starting is waited for: it boots in about a second, in an image in ten. */
const ENCLAVE_WAIT_MS = 20_000
const ENCLAVE_RETRY_MS = 250

async function checkEnclave(
  enclave: EnclaveClient,
  { config, chain }: { readonly config: GatewayConfig; readonly chain: Chain },
): Promise<void> {
  const identity = await awaitIdentity(enclave)
  const { isProduction } = config
  const faults = await findEnclaveFaults(identity, { domain: chain, isProduction, at: new Date() })
  if (faults.length > 0) throw new StartFailure(faults.join('\n'))
}

async function awaitIdentity(enclave: EnclaveClient): Promise<Identity> {
  const deadline = performance.now() + ENCLAVE_WAIT_MS
  for (;;) {
    try {
      return await enclave.identity()
    } catch (error) {
      if (!(error instanceof EnclaveError)) throw error
      if (performance.now() > deadline) throw new StartFailure(`enclave: ENCLAVE_URL: ${error.message}`)
      await sleep(ENCLAVE_RETRY_MS)
    }
  }
}
