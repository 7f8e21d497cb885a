import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { computeUse, MONEY_MAX, priceOf, readPrices, TOKENS_MAX } from '#src/accounts/prices.ts'
import { StartFailure } from '#src/runtime/starting.ts'

let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-prices-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function read(text: string) {
  const file = join(folder, `${crypto.randomUUID()}.json`)
  await writeFile(file, text)
  return readPrices(file)
}

async function faultsOf(text: string): Promise<string> {
  const failure = await read(text).catch((error: unknown) => error)
  expect(failure).toBeInstanceOf(StartFailure)
  return (failure as StartFailure).message
}

const price = (members: string) => `{"prices":[{"models":["m"],${members}}]}`

it('the file of prices gives what models cost, the first price that fits', async () => {
  const prices = await read(
    JSON.stringify({
      prices: [
        { models: ['big-*'], per_million_input_tokens: '2.50', per_million_output_tokens: '10' },
        { models: ['draw'], per_image: '0.04', per_request: '0.000000001' },
        { models: ['*'], per_request: '1' },
      ],
    }),
  )
  expect(priceOf(prices, { model: 'big-1', input: 1_000, output: 100 })).toBe(3_500_000)
  expect(priceOf(prices, { model: 'draw', input: 0, output: 0, images: 3 })).toBe(120_000_001)
  expect(priceOf(prices, { model: '', input: 9, output: 9 })).toBe(1_000_000_000)
})

it('an amount of money is rounded up to billionths, without floats', async () => {
  const prices = await read(price('"per_million_input_tokens":"0.100000001"'))
  expect(priceOf(prices, { model: 'm', input: 1, output: 0 })).toBe(101)
  expect(priceOf(prices, { model: 'm', input: 3_000_000, output: 0 })).toBe(300_000_003)
  expect(priceOf(prices, { model: 'other', input: 1, output: 0 })).toBeNull()
})

it('there are no prices without a file', async () => {
  expect(await readPrices(null)).toEqual([])
})

it('a call costs no more than can be counted', async () => {
  const [most] = ['9999999.999999999']
  const prices = await read(
    price(`"per_million_input_tokens":"${most}","per_image":"${most}","per_request":"${most}"`),
  )
  const huge = { model: 'm', input: 1_000_000_000_000, output: 0, images: 10 }
  expect(priceOf(prices, huge)).toBe(Number(MONEY_MAX))
})

it.each([-2_500_000, 0.5, Number.NaN, Number.NEGATIVE_INFINITY])(
  'a number of tokens or images that is no count, such as %d, is used as 0',
  async (odd) => {
    const prices = await read(price('"per_million_input_tokens":"1","per_image":"1"'))
    const nothing = { tokens: 0, promptTokens: 0, money: 0 }
    const size = { model: 'm', tokens: odd, promptTokens: odd, images: odd }
    expect(computeUse(prices, size)).toEqual(nothing)
    const prompt = { model: 'm', tokens: 7, promptTokens: odd, images: 0 }
    expect(computeUse(prices, prompt)).toEqual({ ...nothing, tokens: 7 })
  },
)

it('a number of tokens beyond all bounds is used as the maximum', () => {
  for (const tokens of [1e300, Number.POSITIVE_INFINITY])
    expect(computeUse([], { model: 'm', tokens, promptTokens: 3, images: 0 })).toMatchObject({
      tokens: TOKENS_MAX,
      promptTokens: 3,
    })
})

it.each([
  [
    'a float',
    price('"per_request":2.5'),
    'prices.0.per_request: expected a decimal number in quotes',
  ],
  ['a number', price('"per_image":1'), 'prices.0.per_image: expected a decimal number in quotes'],
  [
    'a negative',
    price('"per_request":"-1"'),
    'prices.0.per_request: expected a decimal number below',
  ],
  [
    'an exponent',
    price('"per_request":"1e3"'),
    'prices.0.per_request: expected a decimal number below',
  ],
  [
    'a comma',
    price('"per_request":"1,5"'),
    'prices.0.per_request: expected a decimal number below',
  ],
  ['ten digits after the point', price('"per_image":"0.0000000001"'), 'at most 9 digits'],
  ['too much', price('"per_image":"10000000"'), 'below 10000000'],
  ['an unknown member', price('"per_token":"1"'), 'per_token'],
  ['an unknown member of the file', '{"prices":[],"currency":"EUR"}', 'currency'],
  ['no models', '{"prices":[{"models":[]}]}', 'prices.0.models'],
  ['an empty pattern', '{"prices":[{"models":[""]}]}', 'prices.0.models.0'],
  ['no prices', '{}', 'prices'],
  [
    'a model twice',
    '{"prices":[{"models":["a","b"]},{"models":["c","a"],"per_request":"1"}]}',
    'prices.1.models.1: expected each pattern once: it is at prices.0.models.0, which counts',
  ],
  ['a member twice', price('"per_request":"1","per_request":"2"'), 'each member name once'],
  ['no JSON', '{"prices":[', 'prices: PRICES_FILE: expected'],
  ['nothing', '', 'prices: PRICES_FILE: expected'],
])('the file of prices is refused with %s', async (_, text, words) => {
  expect(await faultsOf(text)).toContain(words)
})

it('the file of prices is told all its faults at once, and that it cannot be read', async () => {
  const faults = await faultsOf(price('"per_request":1,"per_image":"x","other":1'))
  expect(faults.split('\n')).toHaveLength(3)
  const none = join(folder, 'none.json')
  await expect(readPrices(none)).rejects.toThrow(`PRICES_FILE ${none} cannot be read (ENOENT)`)
})
