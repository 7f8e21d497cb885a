import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { makeNodeId } from '#src/nodes/registry/owned-nodes.ts'
import { NODE_ID_FORM } from '../../../support/register-node.ts'

it('makeNodeId takes each word from eleven bits, and ignores the other five of the sixteen', () => {
  const bytes = Uint8Array.of(0x00, 0x00, 0xf8, 0x00, 0x07, 0xff, 0xff, 0xff, 0x00, 0x01)
  expect(makeNodeId(() => bytes)).toBe('abandon_abandon_zoo_zoo_ability')
})

it('makeNodeId reads what it was given and nothing around it', () => {
  const inside = new Uint8Array([9, 9, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 9]).subarray(2, 12)
  expect(makeNodeId(() => inside)).toBe('about_about_about_about_about')
})

it('makeNodeId gives ids of the form, without repeating an id in ten thousand', () => {
  const ids = Array.from({ length: 10_000 }, () => makeNodeId(randomBytes))
  expect(ids.filter((id) => !NODE_ID_FORM.test(id))).toEqual([])
  expect(new Set(ids).size).toBe(ids.length)
  // 50,000 draws out of 2,048 words leave out none, but once in ten million runs.
  expect(new Set(ids.flatMap((id) => id.split('_'))).size).toBe(2048)
})
