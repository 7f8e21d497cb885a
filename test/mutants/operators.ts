import { type ParseResult, parseSync } from 'oxc-parser'

/** One seeded fault: the text between two offsets of a file is replaced. */
export type Mutant = {
  /** From the repository's root. */
  readonly file: string
  /** The fault in a few words, such as `await dropped`. */
  readonly rule: string
  readonly start: number
  readonly end: number
  readonly replacement: string
}

type Node = ParseResult['program'] | (Record<string, unknown> & { readonly type: string }) | null
type Found = { readonly type: string; readonly start: number; readonly end: number } & Readonly<
  Record<string, never>
>

/** No test reads each line of a log. */
const NOT_MUTATED = /^(?:this\.#?)?(?:\w*\.)*(?:#?log|logger|console)\b/

const SWAPPED: Readonly<Record<string, readonly [string, string]>> = {
  '<': ['<=', 'boundary moved'],
  '<=': ['<', 'boundary moved'],
  '>': ['>=', 'boundary moved'],
  '>=': ['>', 'boundary moved'],
  '+': ['-', 'sum turned'],
  '-': ['+', 'sum turned'],
  '&&': ['||', 'and turned into or'],
  '||': ['&&', 'or turned into and'],
}

const SWAPPED_METHODS: Readonly<Record<string, readonly [string, string]>> = {
  every: ['some', 'every turned into some'],
  some: ['every', 'some turned into every'],
  min: ['max', 'least turned into greatest'],
  max: ['min', 'greatest turned into least'],
}

/** Methods whose call is dropped, so that all of the list is taken, in any order. */
const DROPPED_METHODS = ['filter', 'toSorted', 'slice', 'trim', 'toLowerCase']

/**
 * Lists the faults that a hurried engineer could make in a TypeScript source: a missing await, a
 * forgotten clean-up, a check left out, a wrong boundary, the first of several, a value compared by
 * its start.
 */
export function listMutants(file: string, source: string): readonly Mutant[] {
  const { program, errors } = parseSync(file, source)
  if (errors[0] !== undefined) throw new Error(`${file}: ${errors[0].message}`)
  const mutants: Mutant[] = []
  walk(program, (node) => {
    for (const [rule, { start, end }, replacement] of faultsOf(node, source))
      mutants.push({ file, rule, start, end, replacement })
  })
  return mutants
}

type Fault = readonly [
  rule: string,
  place: { readonly start: number; readonly end: number },
  replacement: string,
]

function faultsOf(node: Found, source: string): readonly Fault[] {
  const text = (one: { readonly start: number; readonly end: number }) =>
    source.slice(one.start, one.end)
  const { left, right, operator, expression, test, consequent, alternate } = node as Readonly<
    Record<string, Found>
  >
  switch (node.type) {
    case 'AwaitExpression':
      return [['await dropped', node, text((node as unknown as { argument: Found }).argument)]]
    case 'ExpressionStatement': {
      const called =
        expression?.type === 'AwaitExpression'
          ? (expression as unknown as { argument: Found }).argument
          : expression
      const isCall = called?.type === 'CallExpression' || called?.type === 'AssignmentExpression'
      return isCall && !NOT_MUTATED.test(text(called)) && !text(called).startsWith('super(')
        ? [['statement left out', node, ';']]
        : []
    }
    case 'IfStatement':
      return test === undefined
        ? []
        : [
            ['condition never holds', test, 'Math.random() > 1'],
            ['condition always holds', test, 'Math.random() < 1'],
          ]
    case 'ConditionalExpression':
      return consequent && alternate
        ? [['branches swapped', { start: consequent.start, end: alternate.end }, swapped()]]
        : []
    case 'BinaryExpression':
    case 'LogicalExpression':
      return left && right ? faultsOfPair(left, right, String(operator)) : []
    case 'CallExpression':
      return faultsOfCall()
    case 'Literal':
      return ["'asc'", "'desc'"].includes(text(node))
        ? [['order turned', node, text(node) === "'asc'" ? "'desc'" : "'asc'"]]
        : []
    default:
      return []
  }

  function swapped() {
    return consequent && alternate ? `(${text(alternate)}) : (${text(consequent)})` : ''
  }

  function faultsOfPair(one: Found, other: Found, sign: string): readonly Fault[] {
    const place = { start: one.end, end: other.start }
    const swap = SWAPPED[sign]
    const isText = [one, other].some(
      ({ type, value }) =>
        type === 'TemplateLiteral' || (type === 'Literal' && typeof value === 'string'),
    )
    if (swap !== undefined && !(sign === '+' && isText))
      return [[swap[1], place, text(place).replace(sign, swap[0])]]
    if (sign === '??') return [['default left out', node, `(${text(one)})`]]
    // Only values that differ by their texts, such as hashes and names.
    const isNamed = [one, other].every(({ type }) => /^(Identifier|MemberExpression)$/.test(type))
    if ((sign !== '===' && sign !== '!==') || !isNamed) return []
    const start = (side: Found) => {
      const value = text(side)
      return `(typeof ${value} === 'string' ? ${value}.slice(0, 8) : ${value})`
    }
    return [['compared by its start', node, `(${start(one)} ${sign} ${start(other)})`]]
  }

  function faultsOfCall(): readonly Fault[] {
    const { callee, arguments: given } = node as unknown as { callee: Found; arguments: Found[] }
    if (callee.type !== 'MemberExpression') return []
    const { object, property } = callee as unknown as { object: Found; property: Found }
    const name = text(property)
    const swap = SWAPPED_METHODS[name]
    if (swap !== undefined) return [[swap[1], property, swap[0]]]
    if (name === 'at' && given.length === 1 && given[0] !== undefined)
      return [['another of several', given[0], text(given[0]) === '0' ? '-1' : '0']]
    return DROPPED_METHODS.includes(name)
      ? [[`${name} left out`, { start: object.end, end: node.end }, '']]
      : []
  }
}

/** Calls `visit` for each node but those that are types alone. */
function walk(node: Node, visit: (node: Found) => void): void {
  if (node === null || /^(TS(?!AsExpression|NonNull|Satisfies)|Import)/.test(node.type)) return
  visit(node as unknown as Found)
  for (const value of Object.values(node))
    for (const child of Array.isArray(value) ? value : [value])
      if (typeof child === 'object' && child !== null && 'type' in child) walk(child, visit)
}
