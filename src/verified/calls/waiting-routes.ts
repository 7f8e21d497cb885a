import { z } from 'zod'
import { defineRoute, type Route } from '../../api/route.ts'
import { integerText } from '../../api/schemas.ts'
import type { Anchoring } from '../../chain/anchoring.ts'
import type { WaitingAnchor } from '../../chain/waiting-anchors-store.ts'
import type { EnclaveCommits } from '../commits/enclave-commits.ts'
import { waitingAnchors, waitingStatus } from './waiting-replies.ts'

const LIMIT_MAX = 1000

/** Returns the operator's routes for commits and anchors that are not finished. */
export function waitingRoutes({
  commits,
  anchoring,
  listAnchors,
}: {
  readonly commits: Pick<EnclaveCommits, 'worst'>
  readonly anchoring: Pick<Anchoring, 'status' | 'figures'>
  readonly listAnchors: (limit: number) => Promise<readonly WaitingAnchor[]>
}): readonly Route[] {
  const admin = { method: 'GET', tag: 'Administration', scope: 'admin' } as const
  return [
    defineRoute({
      ...admin,
      path: '/v1/admin/anchors',
      summary: 'Anchors that are not confirmed',
      query: z.object({ limit: integerText({ min: 1, max: LIMIT_MAX }).default(100) }),
      reply: { name: 'AdminAnchors', schema: waitingAnchors },
      async handler({ query }) {
        const waiting = await listAnchors(query.limit)
        return {
          anchors: waiting.map(({ txHash, blockNumber, createdAt, attempt, ...anchor }) => ({
            ...anchor,
            tx_hash: txHash,
            block_number: blockNumber,
            created_at: createdAt,
            replaced: attempt,
          })),
        }
      },
    }),
    defineRoute({
      ...admin,
      path: '/v1/admin/status',
      summary: 'The completions that wait to be committed or anchored, and the reason',
      reply: { name: 'AdminStatus', schema: waitingStatus },
      async handler() {
        const worst = commits.worst()
        const chain = anchoring.status()
        const { unconfirmed, oldestAt } = await anchoring.figures.lag()
        return {
          commits: {
            state: worst.phase,
            fault: worst.fault?.message ?? null,
            failing_seconds: worst.failingForMs / 1000,
            waiting_calls: worst.waiting,
          },
          anchors: {
            state: chain.phase,
            fault: chain.fault?.message ?? null,
            chain: chain.isChainFailing ? 'failing' : 'ok',
            pending: chain.pendingCount,
            unconfirmed,
            oldest_at: oldestAt,
          },
        } as const
      },
    }),
  ]
}
