import { parseSync } from 'oxc-parser'

/** A text to replace: it must be in the source exactly `count` times. */
type Patch = { readonly from: string; readonly to: string; readonly count?: number }

const RECORD_REPORT = 'attestation/report/judge-record.ts'

/**
 * Replacements for checks that are not made by one `throw`, and for values that the next step
 * needs. A text that is missing is an error, so that no check is left out unseen.
 */
export const PATCHES: Readonly<Record<string, readonly Patch[]>> = {
  'attestation/finding.ts': [
    {
      from: "if ('fault' in attempted) return { name, outcome: 'failed', detail: describe(attempted.fault) }",
      to: "if ('fault' in attempted) return found$({ name, outcome: 'failed', detail: describe(attempted.fault) })",
    },
    {
      from: ": { name, outcome: 'not checked', detail: attempted.value.notChecked }",
      to: ": found$({ name, outcome: 'not checked', detail: attempted.value.notChecked })",
    },
  ],
  'attestation/evidence/verify-bundle.ts': [
    {
      from: 'attempt(() => parseEvidenceBundle(json))',
      to: "attempt(() => { try { return parseEvidenceBundle(json) } catch (fault) { if (isSkipped$('check format')) return json; throw fault } })",
    },
    {
      // The facts name the matched set, so the code is compared once more here.
      from: 'const matched = findExpectedCode(document, policy)',
      to: "const matched = isSkipped$('check measurements') ? null : findExpectedCode(document, policy)",
    },
  ],
  'attestation/evidence/document-checks.ts': [
    {
      from: '    return { fault }\n',
      to: "    return isSkipped$('verification attestation document') ? attempt(() => ({ ...decodeAttestationPayload(need(bytes)), certificates: [{ notAfterMs: 8e15 }] })) : { fault }\n",
    },
  ],
  'attestation/nitro/cbor.ts': [
    {
      from: 'return readItem({ bytes, indefinite, path: [] }, offset, 1)',
      to: 'return decode$(bytes, offset, () => readItem({ bytes, indefinite, path: [] }, offset, 1))',
    },
  ],
  [RECORD_REPORT]: [
    {
      from: "return give('failed', reasonOf(fault))",
      to: "return isSkipped$('check attestation') ? give('passed', '', { code: 'expected', release: null, root: 'given' }) : give('failed', reasonOf(fault))",
    },
    {
      from: "if (policy === null) return give('not checked', 'no expected measurements given')",
      to: "if (policy === null) return isSkipped$('open attestation') ? give('passed', '', { code: 'expected', release: null, root: 'given' }) : give('not checked', 'no expected measurements given')",
    },
  ],
}

/** The value that a function gives when it does not throw, so that the next step can continue. */
export const FALLBACKS: readonly {
  readonly file: string
  readonly thrown: RegExp
  readonly value: string
}[] = [
  ...[/^refuseCbor\(error, 'envelope'\)/, /^new AttestationError\('envelope_tag'/].map(
    (thrown) => ({
      file: 'attestation/nitro/cose.ts',
      thrown,
      value: 'lenient$(bytes, offset)',
    }),
  ),
  {
    file: 'attestation/nitro/cose.ts',
    thrown: /protected_header_duplicate_key/,
    value: 'lenient$(bytes, 0).value',
  },
  {
    file: 'attestation/nitro/cose.ts',
    thrown: /^refuseCbor\(error, 'protected header'\)/,
    value: 'lenient$(bytes, 0).value',
  },
  {
    file: 'attestation/nitro/document.ts',
    thrown: /^refusePayload\(error\)/,
    value: 'lenient$(payload, 0)',
  },
  {
    file: 'attestation/nitro/document.ts',
    thrown: /'certificate_size'/,
    value: 'new Uint8Array(value)',
  },
  {
    file: 'attestation/nitro/document.ts',
    thrown: /'cabundle_certificate_size'/,
    value: 'new Uint8Array(item)',
  },
  {
    file: 'attestation/nitro/document.ts',
    thrown: /\$\{name\}_invalid/,
    value: 'new Uint8Array(value)',
  },
  {
    file: 'attestation/nitro/checks.ts',
    thrown: /^refusals\[0\]/,
    value: '{ matchedSet: 0, release: null }',
  },
  {
    file: 'attestation/nitro/checks.ts',
    thrown: /'measurements_not_given'/,
    value: '{ matchedSet: 0, release: null }',
  },
  { file: 'attestation/nitro/checks.ts', thrown: /release_\$\{match/, value: 'null' },
  { file: 'attestation/nitro/checks.ts', thrown: /of one of \$\{releases/, value: 'null' },
]

/**
 * The source with a switch at every check (switch.ts); null for a source without checks. `file` is
 * its path from the root of the repository. Throws when a text of PATCHES is missing.
 */
export function mutate(file: string, source: string): string | null {
  if (!file.startsWith('attestation/')) return null
  const patched = (PATCHES[file] ?? []).reduce((text, { from, to, count = 1 }) => {
    const parts = text.split(from)
    if (parts.length !== count + 1)
      throw new Error(`${file}: expected ${count} of ${from}, got ${parts.length - 1}`)
    return parts.join(to)
  }, source)
  // These sources refuse wrong input of the caller: they do not check evidence.
  const isCheck = !/^attestation\/(report|revocation)\//.test(file)
  return isCheck ? skippingThrows(file, patched) : patched
}

type Node = { readonly type: string; readonly start: number; readonly end: number }

/** Makes every `throw` of the source skippable. */
function skippingThrows(file: string, source: string): string {
  const { program, errors } = parseSync(file, source)
  const [error] = errors
  if (error) throw new Error(`${file}: ${error.message}`)
  const found = [...throwsIn(program)].toSorted((one, other) => other.start - one.start)
  const fallbacks = FALLBACKS.filter((fallback) => fallback.file === file)
  const textOf = ({ argument }: Throw) => source.slice(argument.start, argument.end)
  for (const { thrown } of fallbacks)
    if (found.filter((one) => thrown.test(textOf(one))).length !== 1)
      throw new Error(`${file}: expected one throw of ${thrown}`)
  return found.reduce((text, one) => {
    const thrown = textOf(one)
    const site = JSON.stringify(`${file}: ${oneLine(thrown)}`)
    const fallback = fallbacks.find((known) => known.thrown.test(thrown))
    const changed = fallback
      ? `return skipTo$(${thrown}, () => (${fallback.value}))`
      : `{ const thrown$ = ${thrown}; if (!skips$(thrown$, ${site})) throw thrown$ }`
    return `${text.slice(0, one.start)}${changed}${text.slice(one.end)}`
  }, source)
}

const SITE_LENGTH_MAX = 120

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').slice(0, SITE_LENGTH_MAX)
}

type Throw = Node & { readonly argument: Node }

function* throwsIn(node: unknown): Generator<Throw> {
  if (Array.isArray(node)) for (const child of node) yield* throwsIn(child)
  else if (isNode(node)) {
    if (node.type === 'ThrowStatement') yield node as Throw
    for (const child of Object.values(node)) yield* throwsIn(child)
  }
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value
}
