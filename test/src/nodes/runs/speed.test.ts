import { expect, it } from 'vitest'
import {
  ASSUMED_FIRST_TOKEN_MS,
  expectedMs,
  MEASURED_TOKENS_PER_SECOND_MAX,
  speedAfter,
  speedAfterSilence,
  tokensPerSecondOf,
  UNMEASURED,
} from '#src/nodes/runs/speed.ts'

const run = {
  startedAtMs: 1_000,
  firstTokenAtMs: 1_200,
  lastTokenAtMs: 3_200,
  laterTextLength: 400,
}

it('a measured speed begins with the first run', () => {
  expect(speedAfter(UNMEASURED, run)).toEqual({ firstTokenMs: 200, tokensPerSecond: 50 })
})

it('a measured speed moves by a fifth towards the newest run', () => {
  const slow = { ...run, firstTokenAtMs: 2_000, lastTokenAtMs: 6_000, laterTextLength: 400 }
  expect(speedAfter({ firstTokenMs: 500, tokensPerSecond: 50 }, slow)).toEqual({
    firstTokenMs: 600,
    tokensPerSecond: 45,
  })
})

it('a measurement learns no speed from a short answer', () => {
  const short = { ...run, laterTextLength: 31 }
  expect(tokensPerSecondOf(short)).toBeNull()
  expect(speedAfter({ firstTokenMs: 200, tokensPerSecond: 7 }, short).tokensPerSecond).toBe(7)
})

it('a measured speed is finite for an answer in one burst', () => {
  expect(tokensPerSecondOf({ ...run, lastTokenAtMs: run.firstTokenAtMs })).toBe(
    MEASURED_TOKENS_PER_SECOND_MAX,
  )
})

it('a measured speed gets worse when a caller left a node that was silent for longer than usual', () => {
  const usual = { firstTokenMs: 100, tokensPerSecond: 50 }
  expect(speedAfterSilence(usual, 50)).toBe(usual)
  expect(speedAfterSilence(usual, 1_100).firstTokenMs).toBe(300)
  expect(speedAfterSilence(UNMEASURED, ASSUMED_FIRST_TOKEN_MS)).toBe(UNMEASURED)
})

const idle = { inUse: 0, capacity: 10 }

it('the expected time is the first token and 256 more', () => {
  expect(expectedMs({ firstTokenMs: 200, tokensPerSecond: 256 }, idle)).toBe(1_200)
})

it('the expected time doubles with the last slot', () => {
  const measured = { firstTokenMs: 200, tokensPerSecond: 256 }
  expect(expectedMs(measured, { inUse: 10, capacity: 10 })).toBe(2_400)
})
