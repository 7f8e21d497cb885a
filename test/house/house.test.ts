import { dirname } from 'node:path'
import { describe, expect, it } from 'vitest'
import { checkImports, findCircle, listImports, ROOMS, roomOf, targetOf } from './import-rules.ts'
import { listTracked, readTracked } from './tracked-files.ts'

const files = listTracked()
const sources = files.filter((file) =>
  /^(attestation|audit|client|contracts|enclave|migrations|packages|src)\/.*\.tsx?$/.test(file),
)
const importsOf = new Map(sources.map((file) => [file, listImports(file, readTracked(file))]))

function violationsOf(file: string, source: string): readonly string[] {
  return checkImports(file, listImports(file, source)).map(({ rule }) => rule)
}

describe('import directions', () => {
  it('every source file keeps the import directions', () => {
    expect(sources.length).toBeGreaterThan(10)
    expect([...importsOf].flatMap(([file, imports]) => checkImports(file, imports))).toEqual([])
  })

  it('an import from another top-level folder uses the name of that folder', () => {
    const topOf = (file: string) => file.split('/', 1)[0]
    // A path out of the folder begins with a step up for each folder: without it, none is parsed.
    const isFar = (file: string) =>
      readTracked(file).includes('../'.repeat(file.split('/').length - 1))
    const far = files
      .filter((file) => /^[^/]+\/.*\.tsx?$/.test(file) && isFar(file))
      .flatMap((file) => listImports(file, readTracked(file)).map((entry) => ({ file, entry })))
      .filter(({ entry }) => entry.specifier.startsWith('.'))
      .filter(({ file, entry }) =>
        targetOf(file, entry).some(
          (target) => target.includes('/') && topOf(target) !== topOf(file),
        ),
      )
    expect(far).toEqual([])
  })

  it.each([
    ['attestation/x.ts', "import 'node:fs'"],
    ['attestation/x.ts', "import { z } from 'zod'"],
    ['attestation/x.ts', "import { Certificate } from 'pkijs'"],
    ['attestation/x.ts', "import type { A } from '../enclave/protocol/enclave-api.ts'"],
    ['attestation/a/x.ts', "export * from '../../src/api/app.ts'"],
    ['enclave/protocol/x.ts', "import { a } from '../log/log.ts'"],
    ['enclave/x.ts', "import { a } from '../src/app.ts'"],
    ['enclave/x.ts', "import { request } from 'undici'"],
    ['client/x.ts', "import 'node:fs'"],
    ['client/x.ts', "import { z } from 'zod'"],
    ['client/x.ts', "import { a } from '../enclave/protocol/enclave-api.ts'"],
    ['client/x.ts', "import { a } from '../src/api/app.ts'"],
    ['client/x.ts', "import './examples/openai.ts'"],
    ['client/examples/x.ts', "import '../../src/api/app.ts'"],
    ['audit/x.ts', "import { request } from 'undici'"],
    ['audit/x.ts', "import { a } from '../src/runtime/back-off.ts'"],
    ['audit/x.ts', "import { a } from '../enclave/protocol/recover-point.ts'"],
    ['client/x.ts', "import { a } from '../audit/chain.ts'"],
    ['enclave/x.ts', "import { a } from '../client/index.ts'"],
    ['attestation/x.ts', "import { a } from '../client/index.ts'"],
    ['src/web/x/y.ts', "import 'node:fs'"],
    ['src/web/x/y.ts', "import { z } from 'zod'"],
    ['src/web/x/y.ts', "import { a } from '../routes.ts'"],
    ['src/web/x/y.ts', "import { a } from '../../verified/log-replies.ts'"],
    ['src/web/x.ts', "import { a } from './x/y.ts'"],
    ['src/x.ts', "import { a } from '../enclave/notary-key.ts'"],
    ['src/x.ts', "await import('../enclave/main.ts')"],
    ['src/x.ts', "import '../test/x.ts'"],
    ['src/cli/x.ts', "import { a } from '../../packages/contents.ts'"],
    ['src/x.ts', 'await import(name)'],
    ['src/verified/commits/committer.ts', "import { Kysely } from 'kysely'"],
    ['src/storage/x.ts', "import { a } from '../verified/committer.ts'"],
    ['src/runtime/x.ts', "import { a } from '../observability/logger.ts'"],
    ['src/accounts/x.ts', "import { a } from '../nodes/nodes.ts'"],
    ['src/compose.ts', "import { a } from './main.ts'"],
    ['migrations/x.ts', "import { a } from 'pg'"],
    ['migrations/x.ts', "import { a } from '../tables.ts'"],
  ])('the file %s may not contain: %s', (file, source) => {
    expect(violationsOf(file, source)).toHaveLength(1)
  })

  it.each([
    ['attestation/a/x.ts', "import { b } from '../bytes.ts'"],
    ['enclave/x.ts', "import { b } from '../attestation/bytes.ts'; import 'node:http'"],
    ['src/x.ts', "import type { A } from '../enclave/protocol/enclave-api.ts'"],
    ['client/x.ts', "import { b } from '../attestation/bytes.ts'"],
    ['src/web/x/y.tsx', "import { b } from '../../../attestation/bytes.ts'; import 'preact'"],
    ['src/web/x/y.ts', "import type { A } from '../../verified/log-replies.ts'"],
    [
      'client/examples/x.ts',
      "import { b } from '../index.ts'; import OpenAI from 'openai'; import 'node:fs'",
    ],
    ['src/verified/records/records-store.ts', "import { Kysely } from 'kysely'"],
  ])('the file %s may contain: %s', (file, source) => {
    expect(violationsOf(file, source)).toEqual([])
  })
})

describe('circles', () => {
  it('no source file imports itself by way of others', () => {
    const imports = new Map(
      [...importsOf].map(([file, entries]) => [
        file,
        entries.flatMap((entry) => targetOf(file, entry)),
      ]),
    )
    expect(findCircle(imports)).toEqual([])
    expect(findCircle(new Map(Object.entries({ a: ['b'], b: ['c'], c: ['b'] })))).toEqual([
      'b',
      'c',
    ])
  })
})

describe('the rooms', () => {
  const map = readTracked('src/README.md')
  const drawn = [...map.matchAll(/^[├└]─ (\S+)\/ /gm)].map(([, room]) => `src/${room}`)

  it('the picture of src/README.md has every room, those above before those below', () => {
    const rooms = ROOMS.filter((room) => room.startsWith('src/'))
    expect(drawn).toEqual(rooms.toReversed())
  })

  it('the rooms are the folders that exist, and at most twenty-three beside client, audit, packages, bus and pages', () => {
    const folders = new Set(sources.map(roomOf))
    expect(ROOMS.filter((room) => !folders.has(room))).toEqual([])
    const inSrc = sources.flatMap((file) => file.match(/^src\/[^/]+(?=\/)/)?.[0] ?? [])
    expect([...new Set(inSrc)].sort()).toEqual(drawn.toSorted())
    // What is in a folder of the enclave belongs to the room `enclave`.
    const rooms = ROOMS.filter(
      (room) => !['client', 'audit', 'packages', 'src/bus', 'src/web'].includes(room),
    )
    expect(
      new Set(rooms.map((room) => room.replace(/^enclave\/.*/, 'enclave'))).size,
    ).toBeLessThanOrEqual(23)
  })

  it('the walk of a verified call in src/README.md follows the imports', () => {
    const walk = map.slice(map.indexOf('## The way of one verified call'))
    const named = [
      ...new Set(
        [...walk.matchAll(/`((?:src|enclave)\/[\w./-]+\.ts)`/g)].map(([, file = '']) => file),
      ),
    ]
    expect(named.filter((file) => !files.includes(file))).toEqual([])
    const imported = new Set(
      named.flatMap((file) =>
        (importsOf.get(file) ?? []).flatMap((entry) => targetOf(file, entry)),
      ),
    )
    // Where a part of it begins: a request, its route, the enclave, the commits.
    expect(named.filter((file) => !imported.has(file))).toEqual([
      'src/api/app.ts',
      'src/verified/calls/completion-routes.ts',
      'enclave/calls/serve-completion.ts',
      'src/verified/commits/enclave-commits.ts',
    ])
  })
})

describe('house rules', () => {
  it('only config files read process.env', () => {
    // Pages run in browsers, which have no environment; samples for their readers name it.
    const readers = sources.filter(
      (file) =>
        /process\.env\b/.test(readTracked(file)) &&
        !file.endsWith('/config.ts') &&
        !/^src\/web\/[^/]+\//.test(file),
    )
    expect(readers).toEqual([])
  })

  it('no source file has over 600 lines, since that is hardly one concept', () => {
    expect(sources.filter((file) => readTracked(file).split('\n').length > 600)).toEqual([])
  })

  it('no comment is over 100 columns wide', () => {
    const long = sources.flatMap((file) =>
      readTracked(file)
        .split('\n')
        .filter((line) => line.length > 100 && /^\s*(\/\/|\/?\*)/.test(line))
        .map((line) => `${file}: ${line.trim()}`),
    )
    expect(long).toEqual([])
  })

  it('no file is a drawer for anything, such as utils or helpers', () => {
    expect(
      files.filter((file) => /(^|\/)(utils?|helpers?|common|misc)(\.ts|\/)/.test(file)),
    ).toEqual([])
  })

  it('every top folder and every area with more than five sources has a README', () => {
    const count = new Map<string, number>()
    for (const file of sources) count.set(dirname(file), (count.get(dirname(file)) ?? 0) + 1)
    const areas = [...count]
      .filter(([folder, sum]) => sum > 5 || !folder.includes('/'))
      .map(([folder]) => folder)
    const missing = [...areas, 'test'].filter((folder) => !files.includes(`${folder}/README.md`))
    expect(missing).toEqual([])
  })

  it('no shipped file names a machine path or a registry', () => {
    const marks = [
      ['', 'work', 'main'].join('/'),
      ['registry', 'npmjs'].join('.'),
      ['', 'work', 'shared'].join('/'),
    ]
    const texts = files.filter((file) =>
      /\.(tsx?|css|md|json|sol|yml|yaml|sh)$|^\.ci\/run$/.test(file),
    )
    expect(texts.filter((file) => marks.some((mark) => readTracked(file).includes(mark)))).toEqual(
      [],
    )
  })
})
