import { parseSync, Visitor } from 'oxc-parser'
import { expect, it } from 'vitest'
import { listTracked, readTracked } from './tracked-files.ts'

const sources = listTracked('*.ts', '*.tsx')

/** A source without any of these need not be parsed. */
const MAYBE_ODD = /\.\.\.\s*[[{]|\bso\b\s*[:=,)}]/

/** Where a literal is spread into a literal of its kind, and where a parameter is named `so`. */
function findOddSyntax(file: string, source: string): readonly string[] {
  if (!MAYBE_ODD.test(source)) return []
  const found: string[] = []
  const add = (what: string, { start }: { readonly start: number }): void => {
    found.push(`${what}: ${file}:${source.slice(0, start).split('\n').length}`)
  }
  new Visitor({
    ObjectExpression({ properties }) {
      for (const property of properties)
        if (property.type === 'SpreadElement' && property.argument.type === 'ObjectExpression')
          add('spread', property)
    },
    ArrayExpression({ elements }) {
      for (const element of elements)
        if (element?.type === 'SpreadElement' && element.argument.type === 'ArrayExpression')
          add('spread', element)
    },
    JSXSpreadAttribute(attribute) {
      if (attribute.argument.type === 'ObjectExpression') add('spread', attribute)
    },
    Identifier(node) {
      if (node.name === 'so') add('so', node)
    },
  }).visit(parseSync(file, source).program)
  return found
}

it('no literal is spread into another for its layout, and no value is named `so`', () => {
  const odd = sources.flatMap((file) => findOddSyntax(file, readTracked(file)))
  expect(sources.length).toBeGreaterThan(1_000)
  expect(odd).toEqual([])
})

it.each([
  ['f({ ...{ a, b }, c })', ['spread: a.ts:1']],
  ['f([\n  ...[1, 2],\n])', ['spread: a.ts:2']],
  ['f({ ...(isA ? { a } : {}) }, [...[2, 1].toSorted()])', []],
  ['function f(so: object) {\n  return so\n}', ['so: a.ts:1', 'so: a.ts:2']],
  ['const a = <P {...{ b }} {...c} />', ['spread: a.tsx:1']],
])('odd syntax is found in %j', (source, found) => {
  const file = source.includes('<P') ? 'a.tsx' : 'a.ts'
  expect(findOddSyntax(file, source)).toEqual(found)
})
