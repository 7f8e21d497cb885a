import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { matchesPattern } from '#enclave/protocol/choose-provider.ts'
import { StartFailure } from '../../runtime/starting.ts'
import type { RateLimits } from '../rate-limits-store.ts'

/** A tiers file uses these names. */
export const CALL_KINDS = ['verified', 'chat', 'embeddings', 'images', 'search'] as const
export type CallKind = (typeof CALL_KINDS)[number]

export type LimitGroup = {
  /** Unique within the tier, and stored with the counts. */
  readonly name: string
  readonly calls: readonly CallKind[]
  /**
   * Patterns: `*` matches any characters. A call without a model has the empty text as its model.
   */
  readonly models: readonly string[]
  readonly limits: RateLimits
  /** For display. Null if no price is shown. */
  readonly pricePerMillionTokens: string | null
}

/** A call counts in the first group that matches it. Every call matches a group. */
export type Tier = {
  readonly name: string
  readonly description: string
  readonly groups: readonly LimitGroup[]
}

/** `standard` is for accounts without a tier. */
export type Tiers = { readonly standard: Tier; readonly byName: ReadonlyMap<string, Tier> }

/** The standard tier if no tier has this name. */
export function tierOf(tiers: Tiers, name: string | null): Tier {
  return (name === null ? undefined : tiers.byName.get(name)) ?? tiers.standard
}

/** Throws TypeError if no group of the tier matches the call. parseTiers refuses such a tier. */
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

/** For development: calls are counted, but never refused. */
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

/** These limits apply to each kind of call separately. */
const FREE_LIMITS: RateLimits = {
  requestsPerMinute: 60,
  tokensPerMinute: 40_000,
  requestsPerDay: 33_000,
  tokensPerDay: 4_000_000,
}

/**
 * For production without a tiers file, so that no account can spend the operator's money without
 * limit.
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

/** Throws TypeError if `standard` is not the name of one of the tiers. */
export function assembleTiers(standard: string, tiers: readonly Tier[]): Tiers {
  const byName = new Map(tiers.map((tier) => [tier.name, tier]))
  const tier = byName.get(standard)
  if (tier === undefined) throw new TypeError(`expected a tier ${standard}`)
  return { standard: tier, byName }
}

/**
 * Without a file, returns no limits in development, and the free tier in production. Throws
 * StartFailure.
 */
export async function chooseTiers(
  file: string | null,
  { isProduction }: { readonly isProduction: boolean },
): Promise<Tiers> {
  if (file !== null) return readTiers(file)
  return isProduction ? FREE_TIERS : UNLIMITED_TIERS
}

/** Throws StartFailure, which lists all faults of the file. */
export async function readTiers(file: string): Promise<Tiers> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new StartFailure(`limits: RATE_LIMIT_TIERS_FILE ${file} cannot be read (${error.code})`)
  })
  const parsed = parseTiers(text)
  if (parsed.kind === 'tiers') return parsed.tiers
  const faults = parsed.faults.map((fault) => `limits: RATE_LIMIT_TIERS_FILE: ${fault}`)
  throw new StartFailure(faults.join('\n'))
}

/** Limited, because each call is compared with all patterns of its tier. */
const TIERS_MAX = 100
const GROUPS_MAX = 100
const PATTERNS_MAX = 200

/** README.md describes the form. Returns all faults at once. */
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

/**
 * ASCII only, so that the code and the database sort names in the same order. The database locks
 * rows in this order.
 */
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

/**
 * Adds a fault if names are equal, because counts are stored by group name. Adds a fault if a call
 * could match no group, because such a call would have no limit.
 */
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
