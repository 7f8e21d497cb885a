import { expect, it } from 'vitest'
import { parseName } from '#attestation/nitro/certificate.ts'
import { decodeDer } from '#attestation/nitro/der.ts'
import { nameOf } from '../../support/nitro-builder/certificate-builder.ts'
import {
  encodeDer,
  objectIdentifier,
  sequence,
  set,
  utf8String,
} from '../../support/nitro-builder/der-encoder.ts'

const attribute = (type: string, value: Uint8Array) => sequence(objectIdentifier(type), value)
const parse = (der: Uint8Array<ArrayBuffer>) => parseName(decodeDer(der))

it('a distinguished name is shown as one line of its attributes in order', () => {
  expect(parse(nameOf('leaf'))).toMatchObject({
    text: 'C=US, O=Amazon, OU=AWS, CN=leaf',
    commonName: 'leaf',
  })
})

it('an attribute of unknown type is shown by its number', () => {
  expect(parse(sequence(set(attribute('1.2.3.4', utf8String('x')))))?.text).toBe('1.2.3.4=x')
})

it('text that could forge a line on a terminal is shown as hex', () => {
  const forged = utf8String('leaf\nVALID')
  expect(parse(sequence(set(attribute('2.5.4.3', forged))))?.text).toBe(
    `CN=#${Buffer.from(forged).toString('hex')}`,
  )
  const turned = utf8String('\u202egro.swa')
  expect(parse(sequence(set(attribute('2.5.4.3', turned))))?.text).toMatch(/^CN=#0c/)
})

it('string types other than ASCII and UTF-8 are shown as hex', () => {
  expect(
    parse(sequence(set(attribute('2.5.4.3', encodeDer(0x1e, Buffer.from('0041', 'hex'))))))?.text,
  ).toBe('CN=#1e020041')
})

it('a distinguished name with two common names has no common name', () => {
  const two = [
    set(attribute('2.5.4.3', utf8String('a'))),
    set(attribute('2.5.4.3', utf8String('b'))),
  ]
  expect(parse(sequence(...two))?.commonName).toBeNull()
})

it.each([
  ['a text', utf8String('x')],
  ['an empty set', sequence(set())],
  ['an attribute without a value', sequence(set(sequence(objectIdentifier('2.5.4.3'))))],
  ['an attribute without a type', sequence(set(sequence(utf8String('x'), utf8String('x'))))],
  ['sequences for sets', sequence(sequence(attribute('2.5.4.3', utf8String('x'))))],
])('parseName gives null for %s', (_, der) => {
  expect(parse(der)).toBeNull()
})
