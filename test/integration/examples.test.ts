import { openAsBlob, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { formatWithOptions } from 'node:util'
import OpenAI from 'openai'
import { parseSync } from 'oxc-parser'
import { beforeAll, describe, expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import * as attestation from '#attestation/index.ts'
import * as client from '#client/index.ts'
import { REAL_EXPECTED } from '../attestation/evidence/vectors.ts'
import { useAffidavit } from '../support/use-affidavit.ts'

const root = join(import.meta.dirname, '../..')
const vector = (name: string) => new Uint8Array(readFileSync(join(root, 'test/vectors', name)))

const json = (value: unknown) => encodeUtf8(JSON.stringify(value))
const readJson = (name: string) => JSON.parse(Buffer.from(vector(name)).toString())

/** The exports whose examples are run: the main ones of the library and of the client. */
const EXAMPLES: Readonly<Record<string, string>> = {
  verifyBundle: 'attestation/evidence/verify-bundle.ts',
  redactBundle: 'attestation/evidence/bundle.ts',
  verifyRecord: 'attestation/verify-record.ts',
  verifyStream: 'attestation/verify-stream.ts',
  verifyAttestation: 'attestation/nitro/verify-attestation.ts',
  createAttestationVerifier: 'attestation/nitro/verify-attestation.ts',
  compareExchange: 'attestation/compare-exchange.ts',
  hashCompletion: 'attestation/record-hash.ts',
  verifyCompletionSignature: 'attestation/completion-signature.ts',
  verifyLogProof: 'attestation/log-proof.ts',
  verifyReleaseList: 'attestation/release/verify-release.ts',
  measureEif: 'attestation/eif/measure-eif.ts',
  connect: 'client/connect.ts',
}

/** The code of the example in the comment above an exported function. */
function exampleOf(name: string, file: string): string {
  const source = readFileSync(join(root, file), 'utf8')
  const at = source.search(new RegExp(`^export (?:async )?function ${name}\\(`, 'm'))
  const above = parseSync(file, source).comments.findLast(
    ({ type, end }) => type === 'Block' && end < at,
  )
  const [, code = ''] = above?.value.split('@example\n') ?? []
  return code.replaceAll(/^ \* ?/gm, '')
}

/** Runs an example, and gives what it printed beside what its comments say that it prints. */
async function runExample(
  code: string,
  given: Readonly<Record<string, unknown>>,
): Promise<{ readonly printed: readonly string[]; readonly expected: readonly string[] }> {
  const printed: string[] = []
  const log = (...values: readonly unknown[]) =>
    printed.push(formatWithOptions({ breakLength: Number.POSITIVE_INFINITY }, ...values))
  const scope = { ...attestation, ...client, ...given, console: { log } }
  const run = new Function(...Object.keys(scope), `return (async () => {${code}\n})()`)
  await run(...Object.values(scope))
  const expected = [...code.matchAll(/^console\.log\(.*\) \/\/ (.*)$/gm)].map(
    ([, text = '']) => text,
  )
  return { printed, expected }
}

describe('examples in doc comments', () => {
  /** Values that examples take as given: those of all, and those of one. */
  let given: { readonly shared: object; readonly of: Readonly<Record<string, object>> }
  beforeAll(async () => {
    const service = await useAffidavit()
    const policy = JSON.parse(await readFile(service.policyFile, 'utf8'))
    const bundleFile = vector('evidence/bundle.json')
    const { record } = JSON.parse(Buffer.from(bundleFile).toString())
    const values = readJson('releases/values.json')
    const stream = readJson('streams/kept.json').kept[0]
    const shared = {
      OpenAI,
      encodeUtf8,
      ...REAL_EXPECTED.policy,
      bundleFile,
      releasesFile: vector('releases/releases.json'),
      publicKey: values.public_keys[0],
      recordFile: vector('records/stored.json'),
      notary: readJson('records/values.json').notary,
      document: attestation.decodeBase64(record.attestation),
      openAsBlob: () => openAsBlob(join(root, 'test/vectors/eif/synthetic-unsigned.eif')),
    }
    const of = {
      verifyStream: { streamFile: encodeUtf8(stream.stream), requestFile: json(stream.request) },
      compareExchange: { requestFile: json(record.request) },
      connect: { url: service.url, apiKey: service.apiKey, policy },
    }
    given = { shared, of }
  })

  it.each(Object.entries(EXAMPLES))(
    'the example of %s runs, and prints what it says',
    async (name, file) => {
      const code = exampleOf(name, file)
      const { printed, expected } = await runExample(code, { ...given.shared, ...given.of[name] })
      expect(code).toContain(`${name}(`)
      expect(printed).toEqual(expected)
    },
  )
})
