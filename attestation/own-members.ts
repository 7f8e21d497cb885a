/**
 * The own members of `value`, in an object that inherits nothing. What is read of it is what the caller wrote: on the
 * caller's object a member that was left out would be read from Object.prototype, into which any other code of the same
 * program may have put one, and `allowDebug` there would turn the option on for everybody.
 */
export function ownMembers<Type extends object>(value: Type): Type {
  return Object.assign(Object.create(null), value)
}

/**
 * Whether `value` is an object whose members are all its own: one that was written as a literal, in whatever realm, or that
 * inherits nothing. An instance of a class, or an object made over another one, has members that ownMembers would not see.
 */
export function hasOwnMembersAlone(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return (
    prototype === null ||
    (Object.hasOwn(Object(prototype), 'hasOwnProperty') && Object.getPrototypeOf(prototype) === null)
  )
}
