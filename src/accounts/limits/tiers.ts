import { matchesPattern } from '../../../enclave/protocol/choose-provider.ts'
import type { Limits } from '../rate-limits-store.ts'

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
  readonly limits: Limits
  /** As it is shown; null for none. */
  readonly pricePerMillionTokens: string | null
}

/** What an account may use. Of its groups the first that fits a call counts it, and one fits every call. */
export type Tier = {
  readonly name: string
  readonly description: string
  readonly groups: readonly LimitGroup[]
}

/** The tiers by name, and the one of accounts that are in none. */
export type Tiers = { readonly standard: Tier; readonly byName: ReadonlyMap<string, Tier> }

/** Tier of an account: the one with this name, else the standard one (the account may be of an older file). */
export function tierOf(tiers: Tiers, name: string | null): Tier {
  return (name === null ? undefined : tiers.byName.get(name)) ?? tiers.standard
}

/** The group of a tier that counts a call. */
export function findGroup(
  tier: Tier,
  { kind, model }: { readonly kind: CallKind; readonly model: string },
): LimitGroup {
  const group = tier.groups.find(
    ({ calls, models }) => calls.includes(kind) && models.some((pattern) => matchesPattern(pattern, model)),
  )
  if (group === undefined) throw new TypeError(`expected a group for every call in tier ${tier.name}`)
  return group
}

const UNLIMITED: Limits = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  requestsPerDay: null,
  tokensPerDay: null,
}

/** For development: everything is counted, and nothing refused. */
export const UNLIMITED_TIERS: Tiers = assembleTiers('unlimited', [
  {
    name: 'unlimited',
    description: 'No limits, for development; calls are counted all the same',
    groups: [
      { name: 'all', calls: CALL_KINDS, models: ['*'], limits: UNLIMITED, pricePerMillionTokens: null },
    ],
  },
])

/** What a known service of this interface gives everybody for nothing, each kind of call for itself. */
const FREE_LIMITS: Limits = {
  requestsPerMinute: 60,
  tokensPerMinute: 40_000,
  requestsPerDay: 33_000,
  tokensPerDay: 4_000_000,
}

/** For production without a tiers file: nobody can spend the operator's money without a bound. */
export const FREE_TIERS: Tiers = assembleTiers('free', [
  {
    name: 'free',
    description: 'For everybody who was put into no other tier',
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
