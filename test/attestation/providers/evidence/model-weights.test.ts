import { expect, it } from 'vitest'
import { weightsOf, weightsOfBuild } from '#attestation/providers/evidence/model-weights.ts'
import {
  MODEL_CONFIG,
  predicateOf,
  ROOT_HASH,
} from '../../../support/provider-builder/evidence-builder.ts'

const DISK = `${ROOT_HASH}_1_421c697b-8a62-59e2-9085-819a35012c0b`

it('weights whose root hash the measured configuration names are proven', () => {
  expect(weightsOfBuild(predicateOf(MODEL_CONFIG))).toMatchObject({
    weights: 'hardware_proven',
    models: [{ rootHash: ROOT_HASH }],
  })
})

it.each([
  ['plain values', `models:\n  - name: a\n    repo: b/c@1\n    mpk: ${DISK}\n`],
  ['a repository without an owner', `models:\n  - name: a\n    repo: c@1\n    mpk: ${DISK}\n`],
  [
    'another member, and members in another order',
    `models:\n  - port: 1\n    mpk: "${DISK}"\n    repo: b/c@1\n    name: a\n`,
  ],
  [
    'lines that end with CRLF, and blanks at their ends',
    `models: \t\r\n  - name: a \r\n    repo: b/c@1\r\n    mpk: ${DISK}\r\n`,
  ],
  [
    'a comment at the beginning of a line',
    `models:\n  - name: a\n    repo: b/c@1\n# the disk\n    mpk: ${DISK}\n# end\ncpus: 8\n`,
  ],
])('weights are proven by a list with %s', (_, config) => {
  expect(weightsOfBuild(predicateOf(config))).toMatchObject({
    weights: 'hardware_proven',
    models: [{ name: 'a', rootHash: ROOT_HASH }],
  })
})

it.each([
  '---',
  '# a comment\n\n---',
  '# it is not "quoted',
  'image: "ghcr.io/a/b:1"  # the image',
  "  - 'a'",
  '  command: ["a", "b"]',
  'paths:',
  '  - /v1/models',
])('weights are proven by a list after the line %j', (line) => {
  expect(weightsOfBuild(predicateOf(`${line}\n${MODEL_CONFIG}`)).weights).toBe('hardware_proven')
})

// YAML reads no list in these: in a text, or in a document that is not the first.
it.each([
  'a: "',
  "a: '",
  'a: ["b", "',
  'a: "\\"',
  "a: [it's, ', b",
  'a: [b "c, "',
  'a: [\n b\n "c, "',
  'a: [b "c: "',
  'a: &b "',
  'a: "b # c',
  'a: 1\n---',
  'a: 1\n...',
  '--- |',
  '---\n---',
])('a list after the lines %j leaves the weights unknown', (lines) => {
  const config = `${lines}\n${MODEL_CONFIG}"`
  expect(weightsOfBuild(predicateOf(config))).toMatchObject({ weights: 'unknown', models: [] })
})

it('a comment does not hide the items of the list that follow it', () => {
  const item = (name: string) => `  - name: ${name}\n    repo: b/c@1\n    mpk: ${DISK}\n`
  const config = `models:\n${item('a')}# comment\n${item('b')}cpus: 8\n`
  const { models } = weightsOfBuild(predicateOf(config))
  expect(models.map(({ name }) => name)).toEqual(['a', 'b'])
})

it('a configuration without models is that of a router', () => {
  const { weights, reason } = weightsOfBuild(predicateOf('cpus: 8\nshim:\n  upstream-port: 1\n'))
  expect(weights).toBe('unknown')
  expect(reason).toContain('router')
})

it.each([
  ['a list in brackets', 'models: [{ name: a }]\n'],
  ['a quoted name of the list', '"models":\n  - name: a\n'],
  ['two lists', `${MODEL_CONFIG}\n${MODEL_CONFIG}`],
  ['an item without a disk', 'models:\n  - name: "a"\n    repo: "b/c@1"\n'],
  ['a member twice', `models:\n  - name: a\n    repo: b/c@1\n    mpk: ${DISK}\n    mpk: ${DISK}\n`],
  ['an alias', `models:\n  - &a\n    name: a\n    repo: b/c@1\n    mpk: ${DISK}\n`],
  [
    'an item behind a comment that another break ends',
    MODEL_CONFIG.replace('the disk', 'the\r  - disk'),
  ],
  ['a comment with a line separator', MODEL_CONFIG.replace('disk', 'disk\u2028')],
  ['a tab', `models:\n\t- name: a\n`],
  [
    'a quote that its own line does not close',
    `models:\n  - name: "a\n    repo: b/c@1\n    mpk: ${DISK}"\n`,
  ],
  ['a quote that closes nothing', `models:\n  - name: a"\n    repo: b/c@1\n    mpk: ${DISK}\n`],
  ['single quotes', `models:\n  - name: 'a'\n    repo: b/c@1\n    mpk: ${DISK}\n`],
  [
    'a no-break blank at the end of a name',
    `models:\n  - name: a\u00a0\n    repo: b/c@1\n    mpk: ${DISK}\n`,
  ],
  [
    'a comment behind a no-break blank',
    `models:\n  - name: a\n    repo: b/c@1\n    mpk: ${DISK}\n\u00a0# x\n`,
  ],
  ['a repository without a revision', `models:\n  - name: a\n    repo: b/c\n    mpk: ${DISK}\n`],
  ['a repository of a path', `models:\n  - name: a\n    repo: a/b/c@1\n    mpk: ${DISK}\n`],
  [
    'an upper-case root hash',
    `models:\n  - name: a\n    repo: b/c@1\n    mpk: ${DISK.toUpperCase()}\n`,
  ],
])('%s leaves the weights unknown', (_, config) => {
  expect(weightsOfBuild(predicateOf(config))).toMatchObject({ weights: 'unknown', models: [] })
})

it.each([
  [
    'a command line of another configuration',
    { cmdline: `tinfoil-config-hash=${'00'.repeat(32)}` },
  ],
  ['a command line with two hashes', { cmdline: twice(' ') }],
  ['a command line with a second hash behind a tab', { cmdline: twice('\t') }],
  ['no configuration', { config: null }],
  ['a configuration that is no base64', { config: '!' }],
  ['a configuration that is no UTF-8', { config: '/w==' }],
])('%s leaves the weights unknown', (_, changed) => {
  expect(weightsOfBuild(predicateOf(MODEL_CONFIG, changed)).weights).toBe('unknown')
})

function twice(separator: string): string {
  const { cmdline } = predicateOf(MODEL_CONFIG)
  return `console=ttyS0${separator}tinfoil-config-hash=${'00'.repeat(32)} ${cmdline}`
}

const listedTwice = MODEL_CONFIG.replace(
  'models:\n',
  `models:\n  - name: twice\n    repo: a/b@1\n    mpk: ${DISK}\n  - name: twice\n    repo: a/c@1\n    mpk: ${DISK}\n`,
)
const model = weightsOfBuild(predicateOf(listedTwice))

it('weights are proven of the model that the measured list names once', () => {
  expect(weightsOf(model, 'example-31b')).toMatchObject({
    weights: 'hardware_proven',
    measured: { name: 'example-31b', rootHash: ROOT_HASH },
  })
})

it.each(['Example-31b', 'example', '', 'twice'])('weights of the model %j are unknown', (id) => {
  const { weights, reason, measured } = weightsOf(model, id)
  expect([weights, measured]).toEqual(['unknown', null])
  expect(reason).toContain(id === 'twice' ? 'twice' : 'does not name')
})

it('weights that a provider claims stay claimed, whatever the model is', () => {
  const claimed = { weights: 'provider_claimed', reason: 'by its word', models: [] } as const
  expect(weightsOf(claimed, 'example-31b')).toEqual({
    weights: 'provider_claimed',
    reason: 'by its word',
    measured: null,
  })
})
