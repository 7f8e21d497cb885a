import { z } from 'zod'

/** A JSON Schema (2020-12), as OpenAPI 3.1 takes it. */
export type JsonSchema = { readonly [keyword: string]: unknown }

const shapes = new WeakMap<z.core.$ZodType, () => JsonSchema>()

/**
 * `schema`, of which `shape` says as JSON Schema what its checks say in code, where zod cannot know it. To be written next to the
 * check, from the same values. What is made of the schema later (`.nullish()`) keeps it; a further `.check()` does not.
 */
export function described<Schema extends z.ZodType>(schema: Schema, shape: () => JsonSchema): Schema {
  shapes.set(schema, shape)
  return schema
}

/** What a schema takes, as JSON Schema. */
export function jsonSchemaOf(schema: z.ZodType): JsonSchema {
  const { $schema: _, ...json } = z.toJSONSchema(schema, {
    io: 'input',
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      // Zod leaves out those of texts that become numbers: they are of the number.
      const { def } = zodSchema._zod
      if (def.type === 'default' && def.defaultValue !== null) jsonSchema.default = def.defaultValue
      const shape = shapes.get(zodSchema)
      if (shape === undefined) return
      for (const keyword of Object.keys(jsonSchema)) if (keyword !== 'default') delete jsonSchema[keyword]
      Object.assign(jsonSchema, shape())
    },
  })
  return json
}
