import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { matchesPattern } from '../../../enclave/protocol/choose-provider.ts'
import { StartFailure } from '../../runtime/starting.ts'
import type { RateLimits } from '../rate-limits-store.ts'

/** Kinds of calls that are limited, as a tiers file names them. */
export const CALL_KINDS = ['verified', 'chat', 'embeddings', 'images', 'search'] as const
export type CallKind = (typeof CALL_KINDS)[number]

/** Calls that are counted together. */
export type LimitGroup = {
  /** Within its tier; what an account used of it is kept under this name. */
  readonly name: string
  readonly calls: readonly CallKind[]
  /** Patterns, `*` matching any run of characters. Calls without a model have the empty text. */
  readonly models: readonly string[]
  readonly limits: RateLimits
  /** As it is shown; null for none. */
  readonly pricePerMillionTokens: string | null
}

/**
 * What an account may use. Of its groups the first that fits a call counts it, and one fits every
 * call.
 */
export type Tier = {
  readonly name: string
  readonly description: string
  readonly groups: readonly LimitGroup[]
}

/** The tiers by name, and the one of accounts that are in none. */
export type Tiers = { readonly standard: Tier; readonly byName: ReadonlyMap<string, Tier> }

/**
 * Tier of an account: the one with this name, else the standard one (the account may be of an older
 * file).
 */
export function tierOf(tiers: Tiers, name: string | null): Tier {
  return (name === null ? undefined : tiers.byName.get(name)) ?? tiers.standard
}

/** The group of a tier that counts a call. */
export function findGroup(
  tier: Tier,
  { kind, model }: { readonly kind: CallKind; readonly model: string },
): LimitGroup {
  const group = tier.groups.find(
    ({ calls, models }) =>
      calls.includes(kind) && models.some((pattern) => matchesPattern(pattern, model)),
  )
  if (group === undefined)
    throw new TypeError(`expected a group for every call in tier ${tier.name}`)
  return group
}

const UNLIMITED: RateLimits = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  requestsPerDay: null,
  tokensPerDay: null,
}

/** For development: everything is counted, and nothing refused. */
export const UNLIMITED_TIERS: Tiers = assembleTiers('unlimited', [
  {
    name: 'unlimited',
    description: 'No limits, for development; calls are still counted',
    groups: [
      {
        name: 'all',
        calls: CALL_KINDS,
        models: ['*'],
        limits: UNLIMITED,
        pricePerMillionTokens: null,
      },
    ],
  },
])

/**
 * What a known service of this interface gives every account for nothing, each kind of call for
 * itself.
 */
const FREE_LIMITS: RateLimits = {
  requestsPerMinute: 60,
  tokensPerMinute: 40_000,
  requestsPerDay: 33_000,
  tokensPerDay: 4_000_000,
}

/**
 * For production without a tiers file: no account can spend the operator's money without a bound.
 */
export const FREE_TIERS: Tiers = assembleTiers('free', [
  {
    name: 'free',
    description: 'For all accounts without another tier',
    groups: CALL_KINDS.map((kind) => ({
      name: kind,
      calls: [kind],
      models: ['*'],
      limits: FREE_LIMITS,
      pricePerMillionTokens: null,
    })),
  },
])

/** Tiers of which one is the standard. Throws TypeError when it is none of them. */
export function assembleTiers(standard: string, tiers: readonly Tier[]): Tiers {
  const byName = new Map(tiers.map((tier) => [tier.name, tier]))
  const tier = byName.get(standard)
  if (tier === undefined) throw new TypeError(`expected a tier ${standard}`)
  return { standard: tier, byName }
}

/**
 * Gives the tiers of `file`; without one, no limits for development, and for production those of
 * the free tier, so that no key that leaks spends without a bound. Rejects as readTiers does.
 */
export async function chooseTiers(
  file: string | null,
  { isProduction }: { readonly isProduction: boolean },
): Promise<Tiers> {
  if (file !== null) return readTiers(file)
  return isProduction ? FREE_TIERS : UNLIMITED_TIERS
}

/** Gives the tiers of a file. Rejects with StartFailure, which lists every fault in the file. */
export async function readTiers(file: string): Promise<Tiers> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new StartFailure(`limits: RATE_LIMIT_TIERS_FILE ${file} cannot be read (${error.code})`)
  })
  const parsed = parseTiers(text)
  if (parsed.kind === 'tiers') return parsed.tiers
  const faults = parsed.faults.map((fault) => `limits: RATE_LIMIT_TIERS_FILE: ${fault}`)
  throw new StartFailure(faults.join('\n'))
}

/**
 * Tiers of a file, groups of a tier, and model patterns of a group, at most: each call walks the
 * groups and patterns of a tier.
 */
const TIERS_MAX = 100
const GROUPS_MAX = 100
const PATTERNS_MAX = 200

/**
 * Gives the tiers of a tiers file's text (README.md has the form), or every fault in it, in words.
 */
export function parseTiers(
  text: string,
):
  | { readonly kind: 'tiers'; readonly tiers: Tiers }
  | { readonly kind: 'faults'; readonly faults: readonly string[] } {
  const value = readJson(text)
  if (value === undefined) return { kind: 'faults', faults: ['expected JSON'] }
  const parsed = tiersFile.safeParse(value)
  if (!parsed.success) {
    const faults = parsed.error.issues.map(
      ({ path, message }) => `${path.join('.') || 'file'}: ${message}`,
    )
    return { kind: 'faults', faults }
  }
  const { default_tier: standard, tiers } = parsed.data
  return { kind: 'tiers', tiers: assembleTiers(standard, Object.entries(tiers).map(toTier)) }
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Names sort alike here and in the database, which locks by them: ASCII only. */
const NAME = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._:/ -]{0,63}$/, {
  error: 'expected 1 to 64 letters, digits, spaces and . _ : / -, beginning with a letter or digit',
})
const bound = z.int().min(1).max(1_000_000_000_000).nullable()

const group = z.strictObject({
  name: NAME,
  calls: z
    .array(z.enum(CALL_KINDS))
    .min(1)
    .default([...CALL_KINDS]),
  models: z.array(z.string().min(1).max(512)).min(1).max(PATTERNS_MAX).default(['*']),
  requests_per_minute: bound.default(null),
  tokens_per_minute: bound.default(null),
  requests_per_day: bound.default(null),
  tokens_per_day: bound.default(null),
  price_per_million_tokens: z
    .string()
    .regex(/^\d{1,9}(\.\d{1,9})?$/, { error: 'expected a decimal number in quotes' })
    .nullable()
    .default(null),
})

const tier = z.strictObject({
  description: z.string().max(500).default(''),
  groups: z.array(group).min(1).max(GROUPS_MAX).check(checkGroups),
})

const tiersFile = z
  .strictObject({ default_tier: NAME, tiers: z.record(NAME, tier) })
  .check(({ value, issues }) => {
    const names = Object.keys(value.tiers)
    const fault = (path: string[], message: string) =>
      issues.push({ code: 'custom', path, input: undefined, message })
    if (!names.includes(value.default_tier))
      fault(['default_tier'], 'expected the name of one of the tiers')
    if (names.length > TIERS_MAX) fault(['tiers'], `expected at most ${TIERS_MAX} tiers`)
  })

type GroupForm = z.output<typeof group>

/** Names are what counts are kept under; and a call that no group fits would be free. */
function checkGroups({ value, issues }: z.core.ParsePayload<readonly GroupForm[]>): void {
  const fault = (message: string) =>
    issues.push({ code: 'custom', path: [], input: undefined, message })
  const names = value.map(({ name }) => name)
  for (const name of new Set(names.filter((name, place) => names.indexOf(name) !== place)))
    fault(`expected one group with the name ${name}`)
  for (const kind of CALL_KINDS)
    if (!value.some(({ calls, models }) => calls.includes(kind) && models.includes('*')))
      fault(`expected a group for ${kind} with models *, so that every call is in some group`)
}

function toTier([name, { description, groups }]: [string, z.output<typeof tier>]): Tier {
  return {
    name,
    description,
    groups: groups.map((form) => ({
      name: form.name,
      calls: form.calls,
      models: form.models,
      limits: {
        requestsPerMinute: form.requests_per_minute,
        tokensPerMinute: form.tokens_per_minute,
        requestsPerDay: form.requests_per_day,
        tokensPerDay: form.tokens_per_day,
      },
      pricePerMillionTokens: form.price_per_million_tokens,
    })),
  }
}
