/**
 * Copies the own members of `value` into an object that inherits none. Otherwise, a missing member
 * such as `allowDebug` could come from Object.prototype, where any other code may have set it.
 */
export function ownMembers<Type extends object>(value: Type): Type {
  return Object.assign(Object.create(null), value)
}

/**
 * True if all members of `value` are its own: an object literal, from any realm, or an object
 * without a prototype. For any other object, ownMembers would miss the inherited members.
 */
export function hasOwnMembersAlone(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return (
    prototype === null ||
    (Object.hasOwn(Object(prototype), 'hasOwnProperty') &&
      Object.getPrototypeOf(prototype) === null)
  )
}
