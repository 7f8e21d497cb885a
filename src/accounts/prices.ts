import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { JsonError } from '#attestation/json/json-error.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { isCount } from '#attestation/json/value.ts'
import { matchesPattern } from '#enclave/protocol/choose-provider.ts'
import { StartFailure } from '../runtime/starting.ts'

/** Billionths in one unit of the currency. */
export const NANO = 1_000_000_000n

/** Maximum number of tokens that are counted for one call. */
export const TOKENS_MAX = 1_000_000_000_000

/** A JSON number can hold this amount exactly. */
export const MONEY_MAX = BigInt(Number.MAX_SAFE_INTEGER)

/** In billionths. */
type Price = {
  /** Patterns for model names. `*` matches any characters. */
  readonly models: readonly string[]
  readonly perMillionInputTokens: bigint
  readonly perMillionOutputTokens: bigint
  readonly perRequest: bigint
  readonly perImage: bigint
  /** The most tokens of one answer of these models. Default: ANSWER_TOKENS_MAX. */
  readonly answerTokensMax?: number | undefined
}

/** No common model writes a longer answer. */
export const ANSWER_TOKENS_MAX = 131_072

/** The first price that matches a model is used. */
export type Prices = readonly Price[]

/** Returns billionths, rounded up and at most MONEY_MAX. Null if no price matches the model. */
export function priceOf(
  prices: Prices,
  {
    model,
    input,
    output,
    images = 0,
  }: {
    readonly model: string
    /** Tokens of the prompt and of the answer. */
    readonly input: number
    readonly output: number
    readonly images?: number
  },
): number | null {
  const price = findPrice(prices, model)
  if (price === undefined) return null
  const { perMillionInputTokens, perMillionOutputTokens, perRequest, perImage } = price
  const millionths = BigInt(input) * perMillionInputTokens + BigInt(output) * perMillionOutputTokens
  const nano = (millionths + 999_999n) / 1_000_000n + perRequest + BigInt(images) * perImage
  return Number(nano < MONEY_MAX ? nano : MONEY_MAX)
}

export type CallSize = {
  readonly model: string
  readonly tokens: number
  /** Undefined if it is not known how many of the tokens belong to the prompt. */
  readonly promptTokens: number | undefined
  readonly images: number | undefined
}

/**
 * If `promptTokens` is not known, every token costs the higher of the two prices. Null if no price
 * matches the model.
 */
export function costOf(
  prices: Prices,
  { model, tokens, promptTokens, images = 0 }: CallSize,
): number | null {
  const input = Math.min(promptTokens ?? 0, tokens)
  const apart = priceOf(prices, { model, input, output: tokens - input, images })
  if (promptTokens !== undefined || apart === null) return apart
  return Math.max(apart, priceOf(prices, { model, input: tokens, output: 0, images }) ?? 0)
}

function findPrice(prices: Prices, model: string): Price | undefined {
  return prices.find(({ models }) => models.some((it) => matchesPattern(it, model)))
}

/** The most tokens of one answer of the model. The model of an encrypted call is hidden: ''. */
export function largestAnswer(prices: Prices, model: string): number {
  if (model !== '') return findPrice(prices, model)?.answerTokensMax ?? ANSWER_TOKENS_MAX
  return Math.max(ANSWER_TOKENS_MAX, ...prices.map(({ answerTokensMax = 0 }) => answerTokensMax))
}

/** The most that a call of a hidden model may cost. Null if no price matches the empty name. */
export function largestCost(prices: Prices, size: Omit<CallSize, 'model'>): number | null {
  if (findPrice(prices, '') === undefined) return null
  const costs = prices.map((price) => costOf([{ ...price, models: ['*'] }], { ...size, model: '' }))
  return Math.max(...costs.map((cost) => cost ?? 0))
}

export type CallUse = {
  readonly tokens: number
  /** Null when prompt and answer were not counted separately. */
  readonly promptTokens: number | null
  /** Null when no price matches the model. */
  readonly money: number | null
}

/**
 * Counts at most TOKENS_MAX tokens. The number of prompt tokens never exceeds the total number. A
 * value that is not a count is 0: the database would refuse it, and with it the use of all calls.
 */
export function computeUse(prices: Prices, size: CallSize): CallUse {
  const tokens = countOf(size.tokens)
  const isApart = tokens === 0 || size.promptTokens !== undefined
  const promptTokens = isApart ? Math.min(countOf(size.promptTokens), tokens) : undefined
  const images = countOf(size.images)
  return {
    tokens,
    promptTokens: promptTokens ?? null,
    money: costOf(prices, { model: size.model, tokens, promptTokens, images }),
  }
}

function countOf(value = 0): number {
  const count = Math.min(value, TOKENS_MAX)
  return isCount(count) ? count : 0
}

/**
 * Parses a decimal number such as `2.50` to billionths. Null for other text and for too large a
 * number.
 */
export function parseMoney(text: string): bigint | null {
  const [, whole, fraction = ''] = /^(\d{1,7})(?:\.(\d{1,9}))?$/.exec(text) ?? []
  if (whole === undefined) return null
  return BigInt(whole) * NANO + BigInt(fraction.padEnd(9, '0'))
}

export function formatMoney(billionths: number | bigint): string {
  const digits = String(billionths).padStart(10, '0')
  const fraction = digits.slice(-9).replace(/0+$/, '')
  return fraction === '' ? digits.slice(0, -9) : `${digits.slice(0, -9)}.${fraction}`
}

const money = z
  .string({ error: 'expected a decimal number in quotes' })
  .refine((text) => parseMoney(text) !== null, {
    error: 'expected a decimal number below 10000000 with at most 9 digits after the point',
  })
  .transform((text) => parseMoney(text) ?? 0n)

const pricesFile = z.strictObject({
  prices: z
    .array(
      z
        .strictObject({
          models: z.array(z.string().min(1).max(512)).min(1).max(200),
          per_million_input_tokens: money.default(0n),
          per_million_output_tokens: money.default(0n),
          per_request: money.default(0n),
          per_image: money.default(0n),
          max_answer_tokens: z.int().min(1).max(TOKENS_MAX).optional(),
        })
        .transform((form) => ({
          models: form.models,
          perMillionInputTokens: form.per_million_input_tokens,
          perMillionOutputTokens: form.per_million_output_tokens,
          perRequest: form.per_request,
          perImage: form.per_image,
          answerTokensMax: form.max_answer_tokens,
        })),
    )
    .max(1_000)
    .check(({ value, issues }) => {
      const places = new Map<string, string>()
      for (const [index, { models }] of value.entries())
        for (const [position, pattern] of models.entries()) {
          const place = `${index}.models.${position}`
          const first = places.get(pattern)
          if (first === undefined) places.set(pattern, place)
          else
            issues.push({
              code: 'custom',
              input: undefined,
              path: [index, 'models', position],
              message: `expected each pattern once: it is at prices.${first}, which counts`,
            })
        }
    }),
})

/** Returns no prices if `file` is null. Throws StartFailure with every fault. */
export async function readPrices(file: string | null): Promise<Prices> {
  if (file === null) return []
  const bytes = await readFile(file).catch((error: NodeJS.ErrnoException) => {
    throw new StartFailure(`prices: PRICES_FILE ${file} cannot be read (${error.code})`)
  })
  let value: unknown
  try {
    value = parseStrictJson(bytes)
  } catch (error) {
    throw new StartFailure(
      `prices: PRICES_FILE: ${error instanceof JsonError ? error.message : 'expected JSON'}`,
    )
  }
  const parsed = pricesFile.safeParse(value)
  if (parsed.success) return parsed.data.prices
  const faults = parsed.error.issues.map(
    ({ path, message }) => `prices: PRICES_FILE: ${path.join('.') || 'file'}: ${message}`,
  )
  throw new StartFailure(faults.join('\n'))
}
