import { expect, it } from 'vitest'
import { answerBytesOf, createImageBudget } from '#src/nodes/runs/image-memory.ts'

const MIB = 1024 * 1024

it('an image budget sets aside as much as there is, and no more', () => {
  const budget = createImageBudget(10)
  const first = budget.reserve(6)
  expect(budget.reserve(5)).toBeNull()
  expect(budget.reserve(4)).not.toBeNull()
  expect(budget.inUse()).toBe(10)
  first?.release()
  expect(budget.inUse()).toBe(4)
})

it('an image budget takes back once what is given back twice', () => {
  const budget = createImageBudget(10)
  budget.reserve(3)
  const second = budget.reserve(3)
  second?.release()
  second?.release()
  expect(budget.inUse()).toBe(3)
})

it('answerBytesOf has room for images that are not compressed', () => {
  const rgba = Buffer.alloc(512 * 512 * 4).toString('base64').length
  expect(answerBytesOf({ n: 2, size: '512x512' }, 32 * MIB)).toBeGreaterThan(2 * rgba)
})

it('answerBytesOf has room for what the public client draws, which ignores sizes', () => {
  const drawn = Buffer.alloc(1024 * 1024 * 4).toString('base64').length
  expect(answerBytesOf({ n: 2, size: '256x256' }, 32 * MIB)).toBeGreaterThan(2 * drawn)
})

it('answerBytesOf is never more than a frame', () => {
  expect(answerBytesOf({ n: 10, size: '1024x1024' }, 32 * MIB)).toBe(32 * MIB)
})
