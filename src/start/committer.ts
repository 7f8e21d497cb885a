import { signAnchorTransaction } from '../chain/anchor-transaction.ts'
import type { Broadcaster } from '../chain/broadcaster.ts'
import { fetchChainView } from '../chain/chain-reads.ts'
import type { GatewayConfig } from '../config.ts'
import type { Logger } from '../logger.ts'
import type { Meter } from '../metrics/meter.ts'
import { type Committer, createCommitter } from '../services/committer.ts'
import type { EnclaveClient } from '../services/enclave-client.ts'
import { createCommitsStore } from '../stores/commits.ts'
import type { Database } from '../stores/database.ts'
import { createRecordsStore } from '../stores/records.ts'
import type { Chain } from './chain.ts'

/** Starts the committer: it follows the enclave's log, signs with the chain's relayer and wakes the broadcaster. */
export function startCommitter({
  enclave,
  database,
  chain: { rpc, chainId, contract, relayer },
  fees,
  broadcaster,
  countCommit,
  log,
}: {
  readonly enclave: EnclaveClient
  readonly database: Database
  readonly chain: Chain
  readonly fees: GatewayConfig['fees']
  readonly broadcaster: Pick<Broadcaster, 'notify'>
  readonly countCommit: Meter['countCommit'] | undefined
  readonly log: Logger
}): Committer {
  const committer = createCommitter({
    enclave,
    commits: createCommitsStore(database),
    records: createRecordsStore(database),
    domain: { chainId, contract },
    relayer: {
      address: relayer.address,
      firstNonce: async () => (await fetchChainView(rpc, relayer.address)).nonce,
    },
    signAnchor: (nonce, head) =>
      signAnchorTransaction({ relayerKey: relayer.key, chainId, contract, nonce, head, fees }),
    onCommit: () => {
      broadcaster.notify()
      const { lastBatch, lastCommitMs } = committer.status()
      countCommit?.({ records: lastBatch, durationMs: lastCommitMs ?? 0 })
    },
    log,
    now: Date.now,
  })
  committer.start()
  return committer
}
