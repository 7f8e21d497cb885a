import { afterEach, expect, it } from 'vitest'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import { verifyProviderEvidence } from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { createLogger } from '#src/observability/logger.ts'
import type { CollectedProvider } from '#src/providers/collect-evidence.ts'
import {
  type CollectionOutcome,
  createEvidenceCollector,
  pauseAfter,
} from '#src/providers/evidence-collector.ts'
import { createProviderEvidenceStore } from '#src/providers/provider-evidence-store.ts'
import { createProviderTurnsStore } from '#src/providers/provider-turns-store.ts'
import type { Database } from '#src/storage/database.ts'
import {
  type AttestedProviderServer,
  startAttestedProvider,
} from '../../support/collected-provider.ts'
import { useDatabase } from '../../support/databases.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import type { BuiltKind } from '../../support/provider-builder/evidence-builder.ts'

const BLOCK = { chainId: 1, number: 17, hash: `0x${'b1'.repeat(32)}` }
const HOUR_MS = 3_600_000

const database = await useDatabase()
const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

async function openStage(kind?: BuiltKind) {
  const server = await startAttestedProvider(kind)
  ends.push(() => server.stop())
  return { database, server, store: createProviderEvidenceStore(database) }
}

type CollectorOptions = Parameters<typeof createEvidenceCollector>[0]

/** A gateway's collector on the database, whose clock begins when the evidence was made. */
function collect(
  { database, server }: { database: Database; server: AttestedProviderServer },
  {
    kind = 'tinfoil',
    onNewKey,
    ...more
  }: Partial<Omit<CollectorOptions, 'onNewKey'>> & {
    readonly kind?: CollectedProvider['kind']
    readonly onNewKey?: () => void
  } = {},
) {
  const outcomes: CollectionOutcome[] = []
  const newKeys: string[] = []
  const lines: string[] = []
  let looked = 0
  const started = performance.now()
  const turns = createProviderTurnsStore(database)
  const provider: CollectedProvider = {
    name: 'tee',
    origin: server.origin,
    kind,
    build: { repository: 'example/model', digest: 'ab'.repeat(32) },
    policy: parseProviderPolicy(Buffer.from(JSON.stringify(server.policy))),
  }
  const collector = createEvidenceCollector({
    providers: () => [provider],
    evidence: createProviderEvidenceStore(database),
    turns: {
      ...turns,
      takeTurn: (turn) => {
        looked++
        return turns.takeTurn(turn)
      },
    },
    origins: server.origins,
    ca: [server.ca],
    intervalMs: HOUR_MS,
    timeoutMs: 5_000,
    pauseMinMs: 20,
    lookMs: 40,
    keyLookMs: HOUR_MS,
    fetchRecentBlock: async () => BLOCK,
    onCollected: ({ outcome }) => outcomes.push(outcome),
    onNewKey: (name) => {
      newKeys.push(name)
      onNewKey?.()
    },
    now: () => MADE_AT.getTime() + performance.now() - started,
    log: createLogger({
      level: 'debug',
      destination: { write: (line) => void lines.push(line) },
    }),
    ...more,
  })
  collector.start()
  ends.push(() => collector.stop())
  /** Waits until it has looked so often for its turn. */
  const looks = (count: number) =>
    expect.poll(() => looked, settled).toBeGreaterThanOrEqual(looked + count)
  return { outcomes, newKeys, lines, looks, stop: () => collector.stop(), provider }
}

const settled = { timeout: 20_000, interval: 40 }

it.each([
  ['tinfoil v3 TDX', 'tinfoil'],
  ['dstack', 'dstack'],
  ['aci', 'aci'],
  ['nitro', 'nitro'],
] as const)('the evidence of %s passes every check of its policy', async (built, kind) => {
  const stage = await openStage(built)
  const { outcomes, provider } = collect(stage, { kind })
  await expect.poll(() => outcomes, settled).toEqual(['collected'])
  const newest = await stage.store.findNewest(provider)
  expect(newest).toMatchObject({ keys: [stage.server.key()], block: { number: 17 } })
  const document = await stage.store.read(newest?.digest ?? '')
  const at = new Date(newest?.fetchedAtMs ?? 0)
  const judged = await verifyProviderEvidence(document ?? new Uint8Array(), provider.policy, at)
  requireChecks(judged.checks)
  expect(judged.facts).toMatchObject({
    digest: newest?.digest,
    endsAtMs: newest?.endsAtMs,
    block: { chainId: 1, number: 17 },
  })
})

it('the certificates of an SEV-SNP report are those of its chip and of its firmware', async () => {
  const stage = await openStage('tinfoil v3 SNP')
  const { outcomes, provider } = collect(stage)
  await expect.poll(() => outcomes, settled).toEqual(['collected'])
  expect(stage.server.asked).toContain(
    `/vcek/v1/Milan/${'c1'.repeat(64)}?blSPL=04&teeSPL=00&snpSPL=23&ucodeSPL=213`,
  )
  const newest = await stage.store.findNewest(provider)
  const document = await stage.store.read(newest?.digest ?? '')
  const { checks } = await verifyProviderEvidence(
    document ?? new Uint8Array(),
    provider.policy,
    MADE_AT,
  )
  const ofReport = checks.filter(({ name }) => name.startsWith('SEV-SNP: '))
  expect(ofReport.length).toBeGreaterThan(5)
  requireChecks(ofReport)
})

it('the evidence is collected again before it ends, and by turns of the interval', async () => {
  const stage = await openStage()
  const { outcomes } = collect(stage, { intervalMs: 300 })
  await expect.poll(() => outcomes.length, settled).toBeGreaterThanOrEqual(3)
  expect(new Set(outcomes)).toEqual(new Set(['collected']))
  expect(pauseAfter(1_000, { intervalMs: 6_000, pauseMinMs: 100 })).toBe(500)
  expect(pauseAfter(100_000, { intervalMs: 6_000, pauseMinMs: 100 })).toBe(6_000)
  expect(pauseAfter(50, { intervalMs: 6_000, pauseMinMs: 100 })).toBe(100)
  expect(pauseAfter(null, { intervalMs: 6_000, pauseMinMs: 100 })).toBe(6_000)
  expect(pauseAfter(-1, { intervalMs: 6_000, pauseMinMs: 100 })).toBe(6_000)
})

it('a new key is met between two turns, and its evidence is collected at once', async () => {
  const stage = await openStage()
  const { outcomes, newKeys, provider } = collect(stage, { keyLookMs: 50 })
  await expect.poll(() => outcomes, settled).toEqual(['collected'])
  await stage.server.changeKey()
  await expect.poll(() => outcomes, settled).toEqual(['collected', 'collected'])
  expect(newKeys).toEqual(['tee'])
  expect(await stage.store.findNewest(provider)).toMatchObject({ keys: [stage.server.key()] })
})

it('a new key gets its evidence although the hurried collection met another machine', async () => {
  const stage = await openStage()
  const { server, store } = stage
  const first = server.key()
  const { outcomes, newKeys, provider } = collect(stage, {
    keyLookMs: 50,
    onNewKey: () => server.swapKey(),
  })
  await expect.poll(() => outcomes, settled).toEqual(['collected'])
  await server.changeKey()
  await expect.poll(() => outcomes, settled).toEqual(['collected', 'collected'])
  expect(await store.findNewest(provider)).toMatchObject({ keys: [first] })
  server.swapKey()
  await expect
    .poll(() => store.findNewest(provider), settled)
    .toMatchObject({
      keys: [server.key()],
    })
  expect(newKeys).toEqual(['tee'])
})

it('a provider that answers with something else is counted by what it did, kept away, and asked again', async () => {
  const stage = await openStage()
  stage.server.answer('flood')
  const { outcomes, provider } = collect(stage, { timeoutMs: 20_000 })
  for (const [mode, outcome] of [
    ['flood', 'answer_too_large'],
    ['redirect', 'refused'],
    ['other nonce', 'challenge_mismatch'],
    ['other key', 'key_mismatch'],
  ] as const) {
    stage.server.answer(mode)
    await expect.poll(() => outcomes.at(-1), settled).toBe(outcome)
    expect(await stage.store.findNewest(provider)).toBeNull()
  }
  expect(await stage.store.listKeys(stage.server.origin)).toHaveLength(1)
  stage.server.answer('evidence')
  await expect.poll(() => outcomes.at(-1), settled).toBe('collected')
  expect(await stage.store.findNewest(provider)).not.toBeNull()
})

it('a provider that does not answer counts as a timeout, and is asked again', async () => {
  const stage = await openStage()
  stage.server.answer('hang')
  const { outcomes, provider } = collect(stage, { timeoutMs: 500 })
  await expect.poll(() => outcomes.slice(0, 2), settled).toEqual(['timeout', 'timeout'])
  expect(await stage.store.findNewest(provider)).toBeNull()
})

it('a certificate of an authority that is not trusted gives no key and no evidence', async () => {
  const stage = await openStage()
  const other = await startAttestedProvider()
  ends.push(() => other.stop())
  const { outcomes } = collect({ ...stage, server: { ...stage.server, ca: other.ca } })
  await expect.poll(() => outcomes[0], settled).toBe('unreachable')
  expect(await stage.store.listKeys(stage.server.origin)).toEqual([])
})

it('a document whose collateral cannot be fetched is kept, and the log says what is missing', async () => {
  const stage = await openStage()
  stage.server.answer('no collateral')
  const { outcomes, lines, provider } = collect(stage)
  await expect.poll(() => outcomes[0], settled).toBe('collected')
  expect(await stage.store.findNewest(provider)).toMatchObject({ keys: [stage.server.key()] })
  const left = lines.filter((line) => line.includes('collateral of a provider left out'))
  expect(
    left
      .slice(0, 6)
      .map((line) => new URL(JSON.parse(line).url).pathname)
      .toSorted(),
  ).toEqual([
    '/IntelSGXRootCA.der',
    `/repos/example/model/attestations/sha256:${'ab'.repeat(32)}`,
    '/sgx/certification/v4/pckcrl',
    '/tdx/certification/v4/qe/identity',
    '/tdx/certification/v4/tcb',
    '/tdx/certification/v4/tcbevaluationdatanumbers',
  ])
})

it('one of several gateways collects each time', async () => {
  const stage = await openStage()
  const gateways = [1, 2, 3, 4].map(() => collect(stage))
  const outcomes = () => gateways.flatMap((one) => one.outcomes)
  await expect.poll(outcomes, settled).toEqual(['collected'])
  await Promise.all(gateways.map(({ looks }) => looks(5)))
  expect(outcomes()).toEqual(['collected'])
  expect(stage.server.asked.filter((path) => path.includes('nonce='))).toHaveLength(1)
})

it('a collector whose database is away tries on, and stops', async () => {
  const stage = await openStage()
  const away = async () => {
    throw new Error('the database is away')
  }
  let asked = 0
  const { lines, stop } = collect(stage, {
    evidence: { save: away, recordKey: away, isEvidenceDue: away },
    turns: {
      takeTurn: async () => asked++ % 2 || (await away()),
      settleTurn: away,
      hurryTurn: away,
    },
    fetchRecentBlock: away,
  })
  await expect.poll(() => asked, settled).toBeGreaterThan(5)
  await stop()
  expect(lines.join('')).toContain('turn to collect evidence failed')
})
