import { type CallExpression, type Expression, type Node, parseSync, Visitor } from 'oxc-parser'
import { lineCounter } from './plain-words.ts'

/** The title of one test. In `it.each`, one for each row that the file itself lists. */
export type Title = { readonly file: string; readonly line: number; readonly text: string }

/** How many words a sentence has at least. */
export const WORDS_MIN = 4

/**
 * Words that continue a sentence: a title that begins with one lacks its subject. "By", "for" and
 * "if" may open a whole sentence, so they are not here.
 */
const FRAGMENT_WORDS: ReadonlySet<string> = new Set(
  [
    "is isn't are aren't was wasn't were weren't be been has hasn't have haven't had hadn't",
    "does doesn't do don't did didn't can can't cannot could may might must should will would",
    'with that without of and or as in on at by when whose which who from into than but also then',
    'accepts asks catches closes comes does finds gives goes holds keeps knows lets makes needs',
    'passes puts refuses rejects says sends survives takes tells throws waits',
  ].flatMap((words) => words.split(' ')),
)

/** The titles of `it` and `test`, with their variants (`it.each`, `it.skipIf`), in one test file. */
export function listTitles(file: string, source: string): readonly Title[] {
  const { program } = parseSync(file, source)
  const arrays = new Map<string, Node>()
  const calls: CallExpression[] = []
  new Visitor({
    VariableDeclarator({ id, init }) {
      if (id.type === 'Identifier' && init !== null) arrays.set(id.name, init)
    },
    CallExpression(call) {
      if (isTest(call)) calls.push(call)
    },
  }).visit(program)
  const lineAt = lineCounter(source)
  return calls.flatMap((call) => {
    const line = lineAt(call.start)
    const written = textOf(call.arguments[0])
    const rows = rowsOf(call.callee, arrays)
    const texts = rows.length === 0 ? [written] : rows.map((row) => fill(written, row))
    return [...new Set(texts)].map((text) => ({ file, line, text }))
  })
}

/** Why a title is not a whole sentence; null when it reads as one. */
export function findTitleFault(text: string): string | null {
  const words = text
    .replace(/ \[needs .+\]$/, '')
    .trim()
    .split(/\s+/)
  const first = words[0]?.toLowerCase().replace(/[,:;]$/, '') ?? ''
  if (FRAGMENT_WORDS.has(first)) return `"${first}" comes first, so the subject is missing`
  if (words.length < WORDS_MIN) return `it has fewer than ${WORDS_MIN} words`
  return null
}

/** `it('…', …)` and `it.each(…)('…', …)`, but not the `it.each(…)` within. */
function isTest({ callee, arguments: [title, body] }: CallExpression): boolean {
  const hasTitle =
    title !== undefined && !(title.type === 'Literal' && typeof title.value !== 'string')
  return hasTitle && body !== undefined && /^(it|test)$/.test(rootOf(callee))
}

/** `it` of `it.each(rows)`. */
function rootOf(node: Expression): string {
  if (node.type === 'Identifier') return node.name
  if (node.type === 'CallExpression') return rootOf(node.callee)
  return node.type === 'MemberExpression' ? rootOf(node.object) : ''
}

/** What a title says as far as the file itself writes it; `…` for each other part. */
function textOf(node: Node | undefined): string {
  if (node?.type === 'Literal') return String(node.value)
  if (node?.type === 'TemplateLiteral') {
    return node.quasis.map(({ value }) => value.cooked ?? '').join('…')
  }
  // `POSTGRES.title('…')` adds to a title what it needs.
  return node?.type === 'CallExpression' ? textOf(node.arguments[0]) : '…'
}

/** The rows of `it.each(rows)` that the file lists; empty for another call or another source. */
function rowsOf(callee: Node, arrays: ReadonlyMap<string, Node>): readonly Node[] {
  if (callee.type !== 'CallExpression') return []
  const argument = bare(callee.arguments[0])
  const rows = argument?.type === 'Identifier' ? bare(arrays.get(argument.name)) : argument
  if (rows?.type !== 'ArrayExpression') return []
  return rows.elements.flatMap((row) => (row === null ? [] : [row]))
}

/** The value in `value as const` and `value satisfies T`. */
function bare(node: Node | undefined): Node | undefined {
  const wraps = node?.type === 'TSAsExpression' || node?.type === 'TSSatisfiesExpression'
  return wraps ? bare(node.expression) : node
}

/** The title of one row, with its literal values in place of `%s` and `$name`. */
function fill(title: string, row: Node): string {
  const cells = row.type === 'ArrayExpression' ? [...row.elements] : [row]
  const inOrder = title.replace(/%[sdij]/g, (mark) => literalOf(cells.shift() ?? null) ?? mark)
  if (row.type !== 'ObjectExpression') return inOrder
  return inOrder.replace(/\$(\w+)/g, (mark, name) => {
    const member = row.properties.find(
      (each) =>
        each.type === 'Property' && each.key.type === 'Identifier' && each.key.name === name,
    )
    return (member?.type === 'Property' ? literalOf(member.value) : null) ?? mark
  })
}

function literalOf(node: Node | null): string | null {
  if (node?.type === 'Literal') return String(node.value)
  return node?.type === 'TemplateLiteral' ? textOf(node) : null
}
