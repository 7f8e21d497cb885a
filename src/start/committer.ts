import { signAnchorTransaction } from '../chain/anchor-transaction.ts'
import type { Broadcaster } from '../chain/broadcaster.ts'
import { countTransactions } from '../chain/chain-reads.ts'
import type { NoncedRelayer, RelayerNonces } from '../chain/relayer-nonces.ts'
import type { GatewayConfig } from '../config.ts'
import type { EnclaveEndpoint } from '../enclaves/enclave-endpoint.ts'
import type { Logger } from '../observability/logger.ts'
import type { Meter } from '../observability/metrics/meter.ts'
import type { Database } from '../storage/database.ts'
import { createCommitsStore } from '../verified/commits-store.ts'
import { type Committer, createCommitter } from '../verified/committer.ts'
import { createRecordsStore } from '../verified/records-store.ts'
import type { Chain } from './chain.ts'

/** Starts the committer: it follows the enclave's log, signs with the chain's relayer and wakes the broadcaster. */
export function startCommitter({
  enclave,
  database,
  chain,
  nonces,
  fees,
  broadcaster,
  countCommit,
  log,
}: {
  readonly enclave: EnclaveEndpoint
  readonly database: Database
  readonly chain: Chain
  /** Of the chain's relayer, shared by all committers. */
  readonly nonces: RelayerNonces
  readonly fees: GatewayConfig['fees']
  readonly broadcaster: Pick<Broadcaster, 'notify'>
  readonly countCommit: Meter['countCommit'] | undefined
  readonly log: Logger
}): Committer {
  const { chainId, contract, relayer } = chain
  const committer = createCommitter({
    enclave,
    commits: createCommitsStore(database),
    records: createRecordsStore(database),
    domain: { chainId, contract },
    nonces,
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

/** The chain's relayer, and how many transactions of it the chain has. */
export function relayerOf({
  rpc,
  chainId,
  relayer: { address },
}: Pick<Chain, 'rpc' | 'chainId' | 'relayer'>): NoncedRelayer {
  return {
    address,
    countTransactions: (signal) => countTransactions(rpc, { address, chainId }, signal),
  }
}
