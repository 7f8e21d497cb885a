/** The parts of `/openapi.json` that these pages read. */

import type { JsonSchema } from '../../api/schemas.ts'

export type Content = Readonly<
  Record<string, { readonly schema: JsonSchema; readonly example?: unknown }>
>

type Described = {
  readonly operationId: string
  readonly summary: string
  readonly description?: string
  readonly tags: readonly string[]
  readonly security: readonly Readonly<Record<string, readonly string[]>>[]
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: { readonly content: Content }
  readonly responses: Readonly<
    Record<string, { readonly description: string; readonly content: Content }>
  >
}

export type Parameter = {
  readonly name: string
  readonly in: 'path' | 'query' | 'header'
  readonly required: boolean
  readonly schema: JsonSchema
}

export type InterfaceDocument = {
  readonly info: { readonly title: string; readonly description: string; readonly version: string }
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>
  readonly components: { readonly schemas: Schemas }
}

export type Schemas = Readonly<Record<string, JsonSchema>>

export type Operation = Described & { readonly method: string; readonly path: string }

function operationsOf({ paths }: InterfaceDocument): readonly Operation[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) => ({
      ...described,
      path,
      method: method.toUpperCase(),
    })),
  )
}

/** The operations with the same tag, on one page. */
export type Group = {
  readonly name: string
  readonly path: string
  readonly operations: readonly Operation[]
}

/**
 * Returns groups in the order of the document. The groups that are only for administrators are
 * last.
 */
export function groupsOf(document: InterfaceDocument): readonly Group[] {
  const byTag = Map.groupBy(operationsOf(document), ({ tags }) => tags[0] ?? '')
  return [...byTag]
    .map(([name, operations]) => ({ name, path: pathOf(name), operations }))
    .toSorted((one, other) => Number(isForAdmins(one)) - Number(isForAdmins(other)))
}

/** `Verified chat` → `/docs/verified-chat`. */
function pathOf(name: string): string {
  return `/docs/${name.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')}`
}

function isForAdmins({ operations }: Pick<Group, 'operations'>): boolean {
  return operations.every((operation) => keyOf(operation).includes('admin'))
}

/** Returns the scopes that an operation's key needs (empty: any key), or 'none' without a key. */
export function keyOf({ security: [need] }: Operation): 'none' | readonly string[] {
  return need === undefined ? 'none' : Object.values(need).flat()
}

/** Returns the schema that a reference names. Returns any other schema unchanged. */
export function resolve(schema: JsonSchema, schemas: Schemas): JsonSchema {
  return typeof schema.$ref === 'string' ? (schemas[nameOf(schema)] ?? schema) : schema
}

/** Empty for a schema that is not a reference. */
export function nameOf(schema: JsonSchema): string {
  return typeof schema.$ref === 'string' ? schema.$ref.replace('#/components/schemas/', '') : ''
}
