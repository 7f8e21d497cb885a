import { z } from 'zod'
import { sendJsonText } from '../../api/context.ts'
import { ApiError, errorReply } from '../../api/errors.ts'
import { defineRoute, type Route } from '../../api/route.ts'
import type { BlockProofs } from '../../chain/block-proofs.ts'
import type { BroadcasterStatus } from '../../chain/broadcaster.ts'
import { BLOCK_FAULTS } from '../../chain/read-block.ts'
import { NonceUnknown } from '../../chain/relayer-nonces.ts'
import { singleFlight } from '../../runtime/single-flight.ts'
import type { CommitterStatus } from '../commits/committer.ts'

/** All callers get the same answer for this time. */
export const READINESS_AGE_MAX_MS = 1_000

/** Time limit for the check of one part. */
export const CHECK_TIMEOUT_MS = 2_000

/** With this limit, a system that asks every second detects a failure within two seconds. */
const DATABASE_TIMEOUT_MS = 1_000

/** The gateway stays ready until commits have failed for this long. Callers wait meanwhile. */
export const COMMITS_FAILING_MS_MAX = 2_000

/** Verified completions need these parts. `stopping`: the gateway was asked to stop. */
type ReadinessPart = 'database' | 'enclave' | 'attestation' | 'commits' | 'stopping'

type ReadinessReport = {
  /** The gateway is ready when the list is empty. */
  readonly failing: readonly ReadinessPart[]
  /** Completions work without the chain, so the chain is not a ReadinessPart. */
  readonly chain: { readonly isFailing: boolean; readonly anchorsPending: number }
  /** Null when `commits` does not fail. */
  readonly commitFault: CommitFault | null
  /** Unreadable blocks make only some evidence incomplete, so they are not a ReadinessPart. */
  readonly unreadableBlocks: ReturnType<BlockProofs['unreadable']>
}

export type CommitFault =
  | 'relayer_nonce_unknown' // until the chain is read, the stored nonce may be too low
  | 'log_diverged' //          the database and the log contradict each other
  | 'failing'

type Readiness = {
  /** Never rejects. Takes at most CHECK_TIMEOUT_MS. */
  read(): Promise<ReadinessReport>
}

/** The first three checks fail when they reject or take too long. */
export type ReadinessChecks = {
  readonly database: () => Promise<void>
  /** The enclave's current document, standard base64. */
  readonly enclave: () => Promise<string>
  /** Rejects when the document (standard base64) is not valid now. */
  readonly attestation: (document: string) => Promise<void>
  readonly commits: () => Pick<CommitterStatus, 'phase' | 'failingForMs' | 'fault'>
  readonly chain: () => Pick<BroadcasterStatus, 'isChainFailing' | 'pendingCount'>
  readonly unreadableBlocks: BlockProofs['unreadable']
}

/**
 * A part is checked again only after its last check has ended, so checks do not queue up. `now`
 * returns monotonic milliseconds.
 */
export function createReadiness(checks: ReadinessChecks, now: () => number): Readiness {
  const database = singleFlight(checks.database)
  const enclave = singleFlight(checks.enclave)
  const attestation = singleFlight(async () => checks.attestation(await enclave()))
  let last: { readonly report: Promise<ReadinessReport>; readonly atMs: number } | null = null

  async function ask(): Promise<ReadinessReport> {
    const outcomes = await Promise.all([
      settle('database', database(), DATABASE_TIMEOUT_MS),
      settle('enclave', enclave()),
      settle('attestation', attestation()),
    ])
    const { isChainFailing, pendingCount } = checks.chain()
    const commitFault = findCommitFault(checks.commits())
    return {
      failing: [
        ...outcomes.filter((outcome) => outcome !== null),
        ...(commitFault === null ? [] : (['commits'] as const)),
      ],
      commitFault,
      chain: { isFailing: isChainFailing, anchorsPending: pendingCount },
      unreadableBlocks: checks.unreadableBlocks(),
    }
  }

  return {
    read() {
      if (last === null || now() - last.atMs >= READINESS_AGE_MAX_MS)
        last = { report: ask(), atMs: now() }
      return last.report
    },
  }
}

function findCommitFault({
  phase,
  failingForMs,
  fault,
}: Pick<CommitterStatus, 'phase' | 'failingForMs' | 'fault'>): CommitFault | null {
  if (phase === 'following') return null
  if (phase === 'refusing') return 'log_diverged'
  if (fault?.name === NonceUnknown.name) return 'relayer_nonce_unknown'
  return phase === 'failing' && failingForMs < COMMITS_FAILING_MS_MAX ? null : 'failing'
}

/** Returns null when the check succeeded in time. */
async function settle(
  part: ReadinessPart,
  check: Promise<unknown>,
  timeoutMs = CHECK_TIMEOUT_MS,
): Promise<ReadinessPart | null> {
  const timeout = Promise.withResolvers<ReadinessPart>()
  const timer = setTimeout(() => timeout.resolve(part), timeoutMs)
  const outcome = check.then(
    () => null,
    () => part,
  )
  return Promise.race([outcome, timeout.promise]).finally(() => clearTimeout(timer))
}

const health = z.strictObject({ status: z.literal('ok') })

const ready = z.strictObject({
  status: z.literal('ready'),
  failing: z.array(z.string()).max(0),
  reasons: z.strictObject({ blocks: z.enum(BLOCK_FAULTS) }).optional(),
  chain: z.strictObject({
    status: z.enum(['ok', 'failing']),
    anchors_pending: z.int(),
    blocks_unreadable: z.int(),
  }),
  staging: z.literal(true).optional(),
  development: z.literal(true).optional(),
})

/**
 * Returns the health routes. They need no key, and their answers contain only names of parts. If
 * `GET /healthz` does not answer, the process should be restarted. `GET /readyz` answers 200 when
 * verified completions can be served, and otherwise 503 with the failing parts. While `isDraining`,
 * the failing parts include `stopping`, but calls are still served.
 */
export function healthRoutes(
  readiness: Readiness,
  isDraining: () => boolean,
  { isStaging, isProduction }: { readonly isStaging: boolean; readonly isProduction: boolean },
): readonly Route[] {
  const describeAll = (report: ReadinessReport) => ({
    ...describe(report),
    ...(isStaging ? { staging: true } : {}),
    ...(isProduction ? {} : { development: true }),
  })
  const probe = { method: 'GET', tag: 'Service', scope: 'public', isRoutine: true } as const
  return [
    defineRoute({
      ...probe,
      path: '/healthz',
      summary: 'The process answers',
      reply: { name: 'Health', schema: health },
      handler: async () => ({ status: 'ok' }),
    }),
    defineRoute({
      ...probe,
      path: '/readyz',
      summary: 'Verified completions can be served',
      reply: { name: 'Readiness', schema: ready },
      errors: ['not_ready'],
      async handler({ context }) {
        const report = isDraining() ? withStop(await readiness.read()) : await readiness.read()
        if (report.failing.length === 0) return { status: 'ready', ...describeAll(report) }
        const error = new ApiError('not_ready', `Not ready: ${report.failing.join(', ')}`)
        const { status, headers, body } = errorReply(error)
        sendJsonText(
          context,
          JSON.stringify({ ...JSON.parse(body), status: 'failing', ...describeAll(report) }),
        )
        context.status = status
        context.set(headers)
        context.state.failure = error
        return undefined
      },
    }),
  ]
}

/** Adds `stopping`. Calls are still served. */
function withStop(report: ReadinessReport): ReadinessReport {
  return { ...report, failing: ['stopping', ...report.failing] }
}

function describe({ failing, chain, commitFault, unreadableBlocks }: ReadinessReport): object {
  const reasons = {
    ...(commitFault === null ? {} : { commits: commitFault }),
    ...(unreadableBlocks.reason === null ? {} : { blocks: unreadableBlocks.reason }),
  }
  return {
    failing,
    ...(Object.keys(reasons).length === 0 ? {} : { reasons }),
    chain: {
      status: chain.isFailing ? 'failing' : 'ok',
      anchors_pending: chain.anchorsPending,
      blocks_unreadable: unreadableBlocks.count,
    },
  }
}
