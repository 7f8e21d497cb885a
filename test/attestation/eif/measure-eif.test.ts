import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { EifError } from '#attestation/eif/eif-error.ts'
import { type EifReport, measureEif } from '#attestation/eif/measure-eif.ts'
import {
  APPLICATION,
  ascii,
  buildImage,
  CMDLINE,
  encodeSignatureSection,
  KERNEL,
  METADATA,
  makeSigner,
  measurementOf,
  type PlannedImage,
  type PlannedSection,
  RAMDISK,
  repairCrc,
  signRegister,
  TYPE,
  USUAL_SECTIONS,
} from './image-builder.ts'

const NODE_DIGESTS = { sha384: () => createHash('sha384'), crc32 }
const vectors = new URL('../../vectors/eif/', import.meta.url)
const read = (file: string) => new Uint8Array(readFileSync(new URL(file, vectors)))
const manifest = JSON.parse(readFileSync(new URL('manifest.json', vectors), 'utf8')) as {
  files: { file: string; expect: string; pcrs: Record<string, string> }[]
}

async function* split(image: Uint8Array, chunkBytes: number) {
  for (let start = 0; start < image.length; start += chunkBytes)
    yield image.subarray(start, start + chunkBytes)
}
const measure = (image: Uint8Array, chunkBytes = 1000) =>
  measureEif({ sizeBytes: image.length, chunks: split(image, chunkBytes) }, NODE_DIGESTS)
const build = (plan: Partial<PlannedImage>) => buildImage({ sections: USUAL_SECTIONS, ...plan })

function hexOf({ measurements }: EifReport): Record<string, string> {
  const entries = Object.entries(measurements).filter(([, value]) => value !== null)
  return Object.fromEntries(
    entries.map(([name, value]) => [name.slice(3), Buffer.from(value ?? []).toString('hex')]),
  )
}

it.each(manifest.files)(
  'the published image $file is measured with the outcome $expect',
  async ({ file, expect: outcome, pcrs }) => {
    const image = read(file)
    if (outcome === 'ok') expect(hexOf(await measure(image))).toEqual(pcrs)
    else
      await expect(measure(image)).rejects.toMatchObject({
        name: 'EifError',
        code: outcome.replace('reject: ', ''),
      })
  },
)

it.each([1, 2, 11, 12, 13, 547, 548, 549, 1 << 20])(
  'the published images are measured alike in chunks of %d bytes',
  async (chunkBytes) => {
    for (const { file, pcrs } of manifest.files.filter(({ expect: outcome }) => outcome === 'ok'))
      expect(hexOf(await measure(read(file), chunkBytes))).toEqual(pcrs)
  },
)

it('a published image is measured alike with the portable digests', async () => {
  const image = read('synthetic-signed.eif')
  expect(await measureEif({ sizeBytes: image.length, chunks: split(image, 100) })).toEqual(
    await measure(image),
  )
})

it('measureEif gives what the image says about itself', async () => {
  expect(await measure(build({ flags: 1 }))).toMatchObject({
    version: 4,
    architecture: 'aarch64',
    defaultMemoryBytes: 1n << 30n,
    defaultCpus: 2n,
    metadata: { ImageName: 'test' },
    signature: null,
    measurements: { pcr8: null },
    sections: [
      { kind: 'kernel' },
      { kind: 'cmdline' },
      { kind: 'metadata' },
      { kind: 'ramdisk' },
      { kind: 'ramdisk' },
    ],
  })
})

it('sections are measured in the order of the file, wherever kernel and command line stand', async () => {
  const rest = fc.array(fc.constantFrom(RAMDISK, APPLICATION), { minLength: 0, maxLength: 4 })
  const order = rest.chain((ramdisks) =>
    fc.shuffledSubarray([KERNEL, CMDLINE, METADATA, RAMDISK, ...ramdisks], {
      minLength: 4 + ramdisks.length,
    }),
  )
  await fc.assert(
    fc.asyncProperty(order, async (sections) => {
      const isBoot = (section: PlannedSection, index: number) =>
        section.type !== TYPE.ramdisk ||
        sections.findIndex(({ type }) => type === TYPE.ramdisk) === index
      const data = (filter: (section: PlannedSection, index: number) => boolean) =>
        sections
          .map((section, index) => ({
            section,
            take: section.type !== TYPE.metadata && filter(section, index),
          }))
          .filter(({ take }) => take)
          .map(({ section }) => section.data)
      const { measurements } = await measure(buildImage({ sections }), 37)
      expect(measurements).toEqual({
        pcr0: measurementOf(...data(() => true)),
        pcr1: measurementOf(...data(isBoot)),
        pcr2: measurementOf(...data((section, index) => !isBoot(section, index))),
        pcr8: null,
      })
    }),
    { numRuns: 60 },
  )
})

it('measureEif measures the certificate of a signed image and verifies the signature', async () => {
  const signer = makeSigner('P-256')
  const { pcr0 } = (await measure(build({}))).measurements
  const data = encodeSignatureSection(signer.pem, signRegister(signer, pcr0))
  const report = await measure(
    build({ sections: [...USUAL_SECTIONS, { type: TYPE.signature, data }] }),
  )
  expect(report.measurements).toMatchObject({ pcr0, pcr8: measurementOf(signer.der) })
  expect(report.signature).toEqual({
    algorithm: 'ES256',
    certificate: new Uint8Array(signer.der),
  })
})

it('a signature that was taken from another image is refused', async () => {
  const signer = makeSigner('P-384')
  const { pcr0 } = (await measure(build({}))).measurements
  const data = encodeSignatureSection(signer.pem, signRegister(signer, pcr0))
  const other = build({ sections: [KERNEL, CMDLINE, RAMDISK, { type: TYPE.signature, data }] })
  await expect(measure(other)).rejects.toMatchObject({ code: 'signature_payload' })
})

it('measureEif does not detect bytes moved over the boundary of kernel and command line', async () => {
  const moved = [
    { type: TYPE.kernel, data: new Uint8Array([...KERNEL.data, ...CMDLINE.data.subarray(0, 5)]) },
    { type: TYPE.cmdline, data: CMDLINE.data.subarray(5) },
    METADATA,
    RAMDISK,
    APPLICATION,
  ]
  expect((await measure(build({ sections: moved }))).measurements).toEqual(
    (await measure(build({}))).measurements,
  )
})

it('measureEif does not detect other metadata, another architecture or another version', async () => {
  const { measurements } = await measure(build({}))
  const other = { type: TYPE.metadata, data: ascii('{}') }
  const sections = [KERNEL, CMDLINE, other, RAMDISK, APPLICATION]
  expect((await measure(build({ sections, flags: 1 }))).measurements).toEqual(measurements)
  const without = [KERNEL, CMDLINE, RAMDISK, APPLICATION]
  expect((await measure(build({ sections: without, version: 2 }))).measurements).toEqual(
    measurements,
  )
})

it.each<[string, Partial<PlannedImage>, string]>([
  ['a wrong CRC', { crc: 0x12345678 }, 'crc'],
  ['no kernel', { sections: [CMDLINE, RAMDISK] }, 'missing_kernel'],
  ['two kernels', { sections: [KERNEL, KERNEL, CMDLINE, RAMDISK] }, 'section_repeated'],
  [
    'metadata that is no JSON',
    { sections: [KERNEL, CMDLINE, RAMDISK, { type: TYPE.metadata, data: ascii('{') }] },
    'metadata_malformed',
  ],
  [
    'metadata that is no object',
    { sections: [KERNEL, CMDLINE, RAMDISK, { type: TYPE.metadata, data: ascii('[]') }] },
    'metadata_malformed',
  ],
  [
    'an empty signature',
    { sections: [KERNEL, CMDLINE, RAMDISK, { type: TYPE.signature, data: ascii('') }] },
    'signature_malformed',
  ],
])('measureEif refuses a malformed image: %s', async (_, plan, code) => {
  await expect(measure(build(plan))).rejects.toMatchObject({ name: 'EifError', code })
})

it('metadata with numbers that no double holds is accepted, since nothing rests on it', async () => {
  const metadata = { type: TYPE.metadata, data: ascii('{"size":9007199254740993}') }
  expect(
    (await measure(build({ sections: [KERNEL, CMDLINE, RAMDISK, metadata] }))).metadata,
  ).not.toBeNull()
})

it('a source that gives fewer or more bytes than its size is refused', async () => {
  const image = build({})
  const short = measureEif({ sizeBytes: image.length, chunks: split(image.subarray(0, -1), 100) })
  const long = measureEif({
    sizeBytes: image.length,
    chunks: split(Uint8Array.of(...image, 0), 100),
  })
  for (const result of [short, long])
    await expect(result).rejects.toMatchObject({ code: 'source_changed' })
})

it('measureEif passes on the error of a source that fails', async () => {
  const fault = new Error('disk')
  const failing = (async function* () {
    yield build({}).subarray(0, 600)
    throw fault
  })()
  await expect(measureEif({ sizeBytes: build({}).length, chunks: failing })).rejects.toBe(fault)
})

it('measureEif lets go of its source when it refuses the image half-way', async () => {
  let released = false
  const chunks = (async function* () {
    try {
      yield build({ magic: 'no!!' })
    } finally {
      released = true
    }
  })()
  await expect(measureEif({ sizeBytes: build({}).length, chunks })).rejects.toMatchObject({
    code: 'magic',
  })
  expect(released).toBe(true)
})

it('measureEif measures bytes of its own, which a reused chunk does not change', async () => {
  const image = build({})
  const buffer = new Uint8Array(50)
  const chunks = (async function* () {
    for (let start = 0; start < image.length; start += buffer.length) {
      const part = image.subarray(start, start + buffer.length)
      buffer.fill(9)
      buffer.set(part)
      yield buffer.subarray(0, part.length)
    }
  })()
  const measured = await measureEif({ sizeBytes: image.length, chunks }, NODE_DIGESTS)
  expect(measured).toEqual(await measure(image))
})

it('an image may be far larger than the memory that measuring takes', async () => {
  const dataBytes = 128 * 1024 * 1024
  const plan = [
    KERNEL,
    CMDLINE,
    RAMDISK,
    { type: TYPE.ramdisk, data: new Uint8Array(), size: BigInt(dataBytes) },
  ]
  const head = buildImage({ sections: plan, sizes: { 3: BigInt(dataBytes) } })
  const chunk = new Uint8Array(1 << 20)
  const before = process.memoryUsage()
  let heldMost = 0
  const chunks = (async function* () {
    yield head
    for (let given = 0; given < dataBytes; given += chunk.length) {
      yield chunk
      const { arrayBuffers, heapUsed } = process.memoryUsage()
      heldMost = Math.max(heldMost, arrayBuffers - before.arrayBuffers + heapUsed - before.heapUsed)
    }
  })()
  const digests = { ...NODE_DIGESTS, crc32: () => new DataView(head.buffer).getUint32(544) }
  const { sections } = await measureEif({ sizeBytes: head.length + dataBytes, chunks }, digests)
  expect(sections.at(-1)).toMatchObject({ kind: 'ramdisk', dataBytes })
  expect(heldMost).toBeLessThan(32 * 1024 * 1024)
})

const signed = read('synthetic-signed.eif')
const mutation = fc.record({
  edits: fc.array(fc.record({ at: fc.nat(signed.length - 1), to: fc.nat(255) }), {
    minLength: 1,
    maxLength: 6,
  }),
  cut: fc.option(fc.nat(signed.length), { freq: 4 }),
  repaired: fc.boolean(),
})
const mutate = ({
  edits,
  cut,
  repaired,
}: {
  edits: { at: number; to: number }[]
  cut: number | null
  repaired: boolean
}) => {
  const image = signed.slice(0, cut ?? signed.length)
  for (const { at, to } of edits) if (at < image.length) image[at] = to
  return repaired ? repairCrc(image) : image
}
const tryMeasure = (image: Uint8Array) => measure(image).catch((error: unknown) => error)

it('hostile bytes lead only to EifError or to an image with the signed PCR0', async () => {
  const right = (await measure(signed)).measurements
  await fc.assert(
    fc.asyncProperty(mutation, async (plan) => {
      const outcome = await tryMeasure(mutate(plan))
      if (outcome instanceof Error) expect(outcome).toBeInstanceOf(EifError)
      // The signature binds PCR0, so an image that still is accepted has the same bytes where it
      // counts.
      else expect(outcome).toMatchObject({ measurements: { pcr0: right.pcr0 } })
    }),
    { numRuns: 1000 },
  )
})

it('an image that was changed in one place is refused unless its CRC is repaired too', async () => {
  for (let at = 0; at < signed.length; at += 31) {
    const image = signed.with(at, (signed[at] ?? 0) ^ 0x20)
    expect(await tryMeasure(image)).toBeInstanceOf(EifError)
  }
})

it('random bytes lead only to EifError', async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 700 }), async (bytes) => {
      const image = bytes.slice()
      image.set(signed.subarray(0, Math.min(28, image.length)))
      expect(await tryMeasure(image)).toBeInstanceOf(EifError)
    }),
    { numRuns: 200 },
  )
})
