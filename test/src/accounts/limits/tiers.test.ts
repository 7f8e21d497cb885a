import { expect, it } from 'vitest'
import {
  CALL_KINDS,
  findGroup,
  parseTiers,
  type Tiers,
  tierOf,
} from '#src/accounts/limits/tiers.ts'

const FILE = {
  default_tier: 'free',
  tiers: {
    free: {
      description: 'For trying out',
      groups: [
        {
          name: 'large',
          calls: ['verified'],
          models: ['gpt-4o', 'claude-*'],
          requests_per_minute: 10,
          price_per_million_tokens: '2.50',
        },
        { name: 'everything else', tokens_per_day: 1000 },
      ],
    },
    gold: { groups: [{ name: 'all' }] },
  },
}

function parse(value: unknown): Tiers {
  const parsed = parseTiers(JSON.stringify(value))
  if (parsed.kind === 'faults') throw new Error(parsed.faults.join('\n'))
  return parsed.tiers
}

function faultsOf(value: unknown): readonly string[] {
  const parsed = parseTiers(typeof value === 'string' ? value : JSON.stringify(value))
  return parsed.kind === 'faults' ? parsed.faults : []
}

it('a tiers file gives tiers, and what it leaves out is no limit', () => {
  const tiers = parse(FILE)
  expect(tiers.standard.name).toBe('free')
  expect([...tiers.byName.keys()]).toEqual(['free', 'gold'])
  expect(tiers.byName.get('gold')).toEqual({
    name: 'gold',
    description: '',
    groups: [
      {
        name: 'all',
        calls: CALL_KINDS,
        models: ['*'],
        limits: {
          requestsPerMinute: null,
          tokensPerMinute: null,
          requestsPerDay: null,
          tokensPerDay: null,
        },
        pricePerMillionTokens: null,
      },
    ],
  })
})

it.each([
  ['verified', 'gpt-4o', 'large'],
  ['verified', 'claude-', 'large'],
  ['verified', 'gpt-4o-mini', 'everything else'],
  ['chat', 'gpt-4o', 'everything else'],
  ['search', '', 'everything else'],
] as const)('a tiers file counts %s of %j as %s', (kind, model, name) => {
  expect(findGroup(parse(FILE).standard, { kind, model }).name).toBe(name)
})

it('a tiers file is told all its faults at once', () => {
  const { large, rest } = { large: FILE.tiers.free.groups[0], rest: FILE.tiers.free.groups[1] }
  const wrong = {
    default_tier: 'silver',
    tiers: {
      free: { groups: [{ ...large, requests_per_minute: 0 }, rest] },
      'gold\n': { groups: [rest] },
      bronze: {
        groups: [
          { ...rest, tokens: 5 },
          { ...rest, price_per_million_tokens: 2.5 },
        ],
      },
    },
  }
  const faults = faultsOf(wrong)
  expect(faults).toEqual([
    expect.stringMatching(/^tiers\.free\.groups\.0\.requests_per_minute: /),
    expect.stringMatching(/^tiers\.gold/),
    expect.stringMatching(/^tiers\.bronze\.groups\.0: .*tokens/),
    expect.stringMatching(/^tiers\.bronze\.groups\.1\.price_per_million_tokens: /),
  ])
})

it.each([
  ['{', ['expected JSON']],
  ['[]', [expect.stringMatching(/^file: /)]],
  [{ ...FILE, default_tier: 'silver' }, ['default_tier: expected the name of one of the tiers']],
  [
    { ...FILE, tiers: { free: { groups: [{ name: 'a' }, { name: 'a' }] } } },
    ['tiers.free.groups: expected one group with the name a'],
  ],
  [
    {
      ...FILE,
      tiers: {
        free: { groups: [{ name: 'a', calls: ['verified', 'chat', 'embeddings', 'images'] }] },
      },
    },
    [
      'tiers.free.groups: expected a group for search with models *, so that every call is in some group',
    ],
  ],
])('the tiers file %j is refused', (value, faults) => {
  expect(faultsOf(value)).toEqual(faults)
})

it('an account whose tier no longer exists counts as one without a tier', () => {
  const tiers = parse(FILE)
  expect(tierOf(tiers, 'gold').name).toBe('gold')
  expect(tierOf(tiers, 'platinum')).toBe(tiers.standard)
  expect(tierOf(tiers, null)).toBe(tiers.standard)
})
