import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { NOTARY } from '../attestation/build-record.ts'
import { BOOT_CONFIGURATION, digestOf } from '../attestation/evidence/build-evidence.ts'
import { HANDED_IN } from '../support/nitro-builder/document-builder.ts'
import type { Content, Draft } from './cases/draft.ts'
import {
  type ConformanceCase,
  MANIFEST_FORMAT,
  type Manifest,
  readManifest,
  VECTORS,
} from './manifest.ts'

/*
 * Makes test/vectors/manifest.json and test/vectors/conformance/. Run with node. The keys of the
 * development root and its chain are new each time, so every file changes: run it when a check or a
 * case is added, and commit the result. With the word `dialects`, it makes only the cases of
 * Responses and Messages, with `provider` those of evidence of providers, and leaves all others as
 * they are.
 */

HANDED_IN.public_key = Buffer.from(NOTARY.signingKey.publicKey.slice(2), 'hex')
HANDED_IN.user_data = digestOf(BOOT_CONFIGURATION)

// These modules make the documents when they are loaded, so they are loaded after the key above is
// set.
const { bundleCases } = await import('./cases/bundle-cases.ts')
const { dialectCases } = await import('./cases/dialect-cases.ts')
const { makeDocumentCases } = await import('./cases/document-cases.ts')
const { providerCases } = await import('./cases/provider-cases.ts')
const { recordCases } = await import('./cases/record-cases.ts')
const { releaseCases } = await import('./cases/release-cases.ts')
const { streamCases } = await import('./cases/stream-cases.ts')

const MADE = 'conformance'
/** The parts that can be made alone, by their word. */
const PARTS = {
  dialects: { names: /^[a-z]+\/(?:responses|messages)\//, cases: dialectCases },
  provider: { names: /^bundle\/provider-evidence\//, cases: providerCases },
}
const part = Object.entries(PARTS).find(([word]) => word === process.argv[2])?.[1] ?? null
const kept = part === null ? [] : readManifest().cases.filter(({ name }) => !part.names.test(name))
const known = new Map<string, string>(kept.flatMap(filesOf).map((file) => [file, file]))

for (const file of filesIn(MADE)) if (!known.has(file)) rmSync(join(VECTORS, file), { force: true })
const documents = kept.length > 0 ? { drafts: [], skipped: [] } : await makeDocumentCases()
const others = [...bundleCases, ...releaseCases, ...recordCases, ...streamCases]
const drafts = part?.cases ?? [...others, ...documents.drafts, ...dialectCases, ...providerCases]
const manifest: Manifest = {
  format: MANIFEST_FORMAT,
  source: 'test/conformance/generate.ts; the files outside conformance/ are older',
  cases: [...kept, ...drafts.map(settle)],
}
checkNames(manifest)
writeFileSync(join(VECTORS, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`)
for (const skipped of documents.skipped) console.log(`not expressible: ${skipped}`)
console.log(`${manifest.cases.length} cases, ${known.size} files`)

/** The files of a case. */
function filesOf({ source, demands }: ConformanceCase): readonly string[] {
  const { roots = [], releases = [], crls = [], request, answer, policy } = demands
  return [source, ...roots, ...releases, ...crls, request, answer, policy].flatMap(
    (file) => file ?? [],
  )
}

function filesIn(folder: string): readonly string[] {
  const entries = readdirSync(join(VECTORS, folder), { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(VECTORS, join(entry.parentPath, entry.name)))
}

/** Writes the files of a case, and gives the case. */
function settle({ name, about, kind, source, demands, expect }: Draft): ConformanceCase {
  const { roots, releases, request, answer, crls, policy, ...rest } = demands
  const each = (files: readonly Content[] | undefined, label: string) =>
    files?.map((file, at) => save(file, `${label}${files.length > 1 ? `-${at + 1}` : ''}`))
  const [saved, ...others] = [
    save(source, name),
    each(roots, 'roots/root'),
    each(releases, `releases/${slugOf(name)}`),
    each(crls, `lists/${slugOf(name)}`),
  ] as const
  return {
    name,
    about,
    kind,
    source: saved,
    demands: {
      ...Object.fromEntries(
        (['roots', 'releases', 'crls'] as const).flatMap((member, at) =>
          others[at] === undefined ? [] : [[member, others[at]]],
        ),
      ),
      ...(request === undefined ? {} : { request: save(request, `requests/${slugOf(name)}`) }),
      ...(answer === undefined ? {} : { answer: save(answer, `answers/${slugOf(name)}`) }),
      ...(policy === undefined ? {} : { policy: save(policy, `policies/${slugOf(name)}`) }),
      ...rest,
    },
    expect,
  }
}

/** The path of the file with this content. Each content is written once. */
function save(content: Content, label: string): string {
  if ('path' in content) return content.path
  const extension = 'json' in content ? 'json' : content.extension
  const bytes = 'json' in content ? Buffer.from(`${JSON.stringify(content.json)}\n`) : content.bytes
  const digest = createHash('sha256').update(bytes).digest('hex')
  const before = known.get(`${extension} ${digest}`)
  if (before !== undefined) return before
  const taken = new Set(known.values())
  const free = (at: number): string => {
    const path = `${MADE}/${label}${at === 0 ? '' : `-${at + 1}`}.${extension}`
    return taken.has(path) ? free(at + 1) : path
  }
  const path = free(0)
  known.set(`${extension} ${digest}`, path)
  mkdirSync(dirname(join(VECTORS, path)), { recursive: true })
  writeFileSync(join(VECTORS, path), bytes)
  return path
}

function slugOf(name: string): string {
  return name.replaceAll('/', '-')
}

function checkNames({ cases }: Manifest): void {
  const names = cases.map(({ name }) => name)
  const twice = names.filter((name, at) => names.indexOf(name) !== at)
  if (twice.length > 0) throw new Error(`expected each name once: ${twice.join(', ')}`)
}
