import { z } from 'zod'
import { assembleTiers, CALL_KINDS, type Tier, type Tiers } from './tiers.ts'

/** Tiers of a file, groups of a tier, and model patterns of a group, at most: each call walks the groups and patterns of a tier. */
export const TIERS_MAX = 100
export const GROUPS_MAX = 100
export const PATTERNS_MAX = 200

/** Gives the tiers of a tiers file's text (README.md has the form), or every fault of it, in words. */
export function parseTiers(
  text: string,
):
  | { readonly kind: 'tiers'; readonly tiers: Tiers }
  | { readonly kind: 'faults'; readonly faults: readonly string[] } {
  const value = readJson(text)
  if (value === undefined) return { kind: 'faults', faults: ['expected JSON'] }
  const parsed = tiersFile.safeParse(value)
  if (!parsed.success) {
    const faults = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'file'}: ${message}`)
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
  error: 'expected 1 to 64 of letters, digits, blanks and . _ : / -, beginning with a letter or digit',
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
    if (!names.includes(value.default_tier)) fault(['default_tier'], 'expected the name of one of the tiers')
    if (names.length > TIERS_MAX) fault(['tiers'], `expected at most ${TIERS_MAX} tiers`)
  })

type GroupForm = z.output<typeof group>

/** Names are what counts are kept under; and a call that no group fits would be free. */
function checkGroups({ value, issues }: z.core.ParsePayload<readonly GroupForm[]>): void {
  const fault = (message: string) => issues.push({ code: 'custom', path: [], input: undefined, message })
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
